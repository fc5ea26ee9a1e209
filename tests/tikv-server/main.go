// A server for tests that speaks the protocols of PD and TiKV on loopback.
//
// It is built on mocktikv, the store with which the authors of TiKV's Go client test that client:
// multi-version values, Percolator's locks, regions with leaders and epochs. It is NOT TiKV: it is one
// process without Raft, durability or async commit, has limits only where flags set them, and
// serializes all requests by one lock, so it is useless for measuring speed.
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var verbose = flag.Bool("v", false, "log every request")

func main() {
	stores := flag.Int("stores", 1, "number of stores")
	splits := flag.String("split", "", "comma separated keys in hex at which regions begin")
	deaf := flag.Bool("deaf", false, "let PD return stores that do not respond")
	message := flag.Int("max-message", 64<<20, "bytes of a message")
	keys := flag.Int("max-keys", 0, "keys of a transaction, 0 for no limit")
	bytes := flag.Int("max-bytes", 0, "bytes of a transaction, 0 for no limit")
	value := flag.Int("max-value", 0, "bytes of a value, 0 for no limit")
	secure := security{}
	flag.StringVar(&secure.ca, "ca", "", "authority of the clients' certificates; turns TLS on")
	flag.StringVar(&secure.cert, "cert", "", "certificate of the servers")
	flag.StringVar(&secure.key, "key", "", "key of the certificate")
	flag.Parse()

	// The test reads only the first line of our output, and mocktikv logs to the same pipe.
	signal.Ignore(syscall.SIGPIPE)

	cli, cluster, _, err := testutils.NewMockTiKV("", nil)
	if err != nil {
		log.Fatal(err)
	}
	time := &clock{}
	faults := &faults{calls: map[string]uint64{}, cluster: cluster, limits: newLimits(*keys, *bytes, *value)}
	opts := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(guard, faults.inject),
		grpc.MaxRecvMsgSize(*message), grpc.MaxSendMsgSize(*message),
	}
	if secure.wanted() {
		opts = append(opts, secure.option())
	}
	var storeIDs, peerIDs []uint64
	for i := 0; i < *stores; i++ {
		l := listen()
		id := cluster.AllocID()
		cluster.AddStore(id, l.Addr().String())
		storeIDs, peerIDs = append(storeIDs, id), append(peerIDs, cluster.AllocID())
		if *deaf {
			_ = l.Close()
			continue
		}
		g := grpc.NewServer(opts...)
		tikvpb.RegisterTikvServer(g, &tikvSrv{addr: l.Addr().String(), cli: cli, clock: time, faults: faults})
		go func() { log.Fatal(g.Serve(l)) }()
	}
	rid := cluster.AllocID()
	cluster.Bootstrap(rid, storeIDs, peerIDs, peerIDs[0])
	// A new region of mocktikv has no epoch, which tikv-client 0.4.0 does not support: split and merge
	// once, so that every region has one.
	tmp := cluster.AllocIDs(1 + *stores)
	cluster.Split(rid, tmp[0], []byte("m"), tmp[1:], tmp[1])
	cluster.Merge(rid, tmp[0])
	for _, text := range strings.Split(*splits, ",") {
		key, err := hex.DecodeString(text)
		if err != nil {
			log.Fatal(err)
		}
		if len(key) > 0 {
			split(cluster, key, *stores)
		}
	}

	l := listen()
	g := grpc.NewServer(opts...)
	pdpb.RegisterPDServer(g, &pdSrv{url: secure.scheme() + l.Addr().String(), cluster: cluster, clock: time, faults: faults})
	etcdpb.RegisterKVServer(g, &etcdSrv{kv: map[string]string{}, rev: 1})
	go func() { log.Fatal(g.Serve(l)) }()

	c := listen()
	control := &control{faults: faults, cluster: cluster, store: cli, clock: time, stores: *stores}
	go func() { log.Fatal(http.Serve(c, control.handler())) }()
	fmt.Printf("PD=%s CONTROL=%s\n", l.Addr(), c.Addr())

	// The test holds the other end of stdin: when it ends in any way, so does this server.
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = cli.Close()
}

func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// guard turns a panic, such as for a method that is not implemented, into an error response.
func guard(ctx context.Context, req interface{}, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp interface{}, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Unimplemented, "%s: %v", info.FullMethod, p)
			log.Print(err)
		}
	}()
	resp, err = h(ctx, req)
	if *verbose {
		log.Printf("%s %v -> %v %v", info.FullMethod, req, resp, err)
	}
	return
}

// encodeBytes is TiKV's memcomparable encoding.
func encodeBytes(b []byte) []byte {
	var out []byte
	for i := 0; i <= len(b); i += 8 {
		var chunk [8]byte
		n := copy(chunk[:], b[i:])
		out = append(out, chunk[:]...)
		out = append(out, byte(0xff-(8-n)))
	}
	return out
}
