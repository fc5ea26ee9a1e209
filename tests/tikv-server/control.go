// The control port of the test, plain HTTP: inject faults, count requests, split and move regions.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/tikv/client-go/v2/testutils"
)

type control struct {
	faults  *faults
	cluster *testutils.MockCluster
	store   *testutils.MockClient
	clock   *clock
	stores  int
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/fault", c.fault)
	mux.HandleFunc("/calls", c.calls)
	mux.HandleFunc("/split", c.split)
	mux.HandleFunc("/lead", c.lead)
	mux.HandleFunc("/dump", c.dump)
	mux.HandleFunc("/fill", c.fill)
	return mux
}

func (c *control) fault(w http.ResponseWriter, r *http.Request) {
	prefix, err := hex.DecodeString(r.FormValue("key"))
	times, err2 := strconv.Atoi(r.FormValue("times"))
	ms, _ := strconv.Atoi(r.FormValue("ms"))
	if err != nil || err2 != nil || !isFault(r.FormValue("what")) {
		http.Error(w, "bad fault", http.StatusBadRequest)
		return
	}
	delay := time.Duration(ms) * time.Millisecond
	c.faults.add(&fault{r.FormValue("on"), r.FormValue("what"), prefix, times, delay})
}

func (c *control) calls(w http.ResponseWriter, r *http.Request) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	_ = json.NewEncoder(w).Encode(c.faults.calls)
}

func (c *control) split(w http.ResponseWriter, r *http.Request) {
	key, err := hex.DecodeString(r.FormValue("key"))
	if err != nil {
		http.Error(w, "bad key", http.StatusBadRequest)
		return
	}
	split(c.cluster, key, c.stores)
}

// lead moves the leader of the key's region to its next peer.
func (c *control) lead(w http.ResponseWriter, r *http.Request) {
	key, err := hex.DecodeString(r.FormValue("key"))
	if err != nil {
		http.Error(w, "bad key", http.StatusBadRequest)
		return
	}
	region, leader := c.cluster.GetRegionByKey(encodeBytes(key))
	for i, peer := range region.Peers {
		if peer.Id == leader.Id {
			c.cluster.ChangeLeader(region.Id, region.Peers[(i+1)%len(region.Peers)].Id)
			return
		}
	}
}

// dump returns every pair with a prefix in hex, without using a client.
func (c *control) dump(w http.ResponseWriter, r *http.Request) {
	start, err := hex.DecodeString(r.FormValue("key"))
	if err != nil || len(start) == 0 {
		http.Error(w, "bad key", http.StatusBadRequest)
		return
	}
	end := append([]byte{}, start...)
	end[len(end)-1]++
	if err := c.resolve(start, end); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	found := c.store.MvccStore.Scan(start, end, math.MaxInt32, math.MaxUint64-1, kvrpcpb.IsolationLevel_SI, nil)
	pairs := make([][2]string, 0, len(found))
	for _, pair := range found {
		if pair.Err != nil { // a lock: some commit is not through with its keys
			http.Error(w, pair.Err.Error(), http.StatusConflict)
			return
		}
		pairs = append(pairs, [2]string{hex.EncodeToString(pair.Key[len(start):]), hex.EncodeToString(pair.Value)})
	}
	_ = json.NewEncoder(w).Encode(pairs)
}

// fill adds count entries to a directory without using a client, a thousand at a time. Names are
// numbers of eight digits, and inodes start at one million.
func (c *control) fill(w http.ResponseWriter, r *http.Request) {
	dir, err := hex.DecodeString(r.FormValue("key"))
	count, err2 := strconv.Atoi(r.FormValue("count"))
	if err != nil || err2 != nil {
		http.Error(w, "bad directory", http.StatusBadRequest)
		return
	}
	for first := 0; first < count; first += 1000 {
		start, commit := c.now(), c.now()
		var keys [][]byte
		var puts []*kvrpcpb.Mutation
		for i := first; i < first+1000 && i < count; i++ {
			key := append(append([]byte{}, dir...), fmt.Sprintf("%08d", i)...)
			entry := append([]byte{1}, binary.BigEndian.AppendUint64(nil, uint64(1_000_000+i))...)
			keys = append(keys, key)
			puts = append(puts, &kvrpcpb.Mutation{Op: kvrpcpb.Op_Put, Key: key, Value: entry})
		}
		req := &kvrpcpb.PrewriteRequest{Mutations: puts, PrimaryLock: keys[0], StartVersion: start, LockTtl: 3000}
		for _, err := range c.store.MvccStore.Prewrite(req) {
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
		}
		if err := c.store.MvccStore.Commit(keys, start, commit); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
	}
}

func (c *control) now() uint64 {
	ph, lo := c.clock.alloc(1)
	return uint64(ph)<<18 + uint64(lo)
}

// resolve resolves the locks of clients that ended right after a commit.
func (c *control) resolve(start, end []byte) error {
	store := c.store.MvccStore
	locks, err := store.ScanLock(start, end, math.MaxUint64-1)
	if err != nil {
		return err
	}
	now := c.now()
	for _, lock := range locks {
		ttl, commit, _, err := store.CheckTxnStatus(lock.PrimaryLock, lock.LockVersion, now, now, false, false)
		if err != nil {
			return err
		}
		if ttl > 0 {
			return fmt.Errorf("a transaction has not finished with %x", lock.Key)
		}
		if err := store.ResolveLock(start, end, lock.LockVersion, commit); err != nil {
			return err
		}
	}
	return nil
}

func split(cluster *testutils.MockCluster, key []byte, stores int) {
	region, _ := cluster.GetRegionByKey(encodeBytes(key))
	ids := cluster.AllocIDs(1 + stores)
	// Spread the leaders over the stores.
	cluster.Split(region.Id, ids[0], key, ids[1:], ids[1+int(ids[0])%stores])
}
