// Limits of messages and transactions, as real clusters have them.
package main

import (
	"sync"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// limits of one transaction over all of its requests; 0 means no limit.
type limits struct {
	keys  int // that it writes or locks
	bytes int // of their keys and values
	value int // of one value
	mu    sync.Mutex
	seen  map[uint64]*size // by the start of the transaction
}

// size is the size of a transaction so far. A key that is sent again counts once.
type size struct {
	keys  map[string]struct{}
	bytes int
}

func newLimits(keys, bytes, value int) *limits {
	return &limits{keys: keys, bytes: bytes, value: value, seen: map[uint64]*size{}}
}

func (l *limits) check(req interface{}) error {
	prewrite, ok := req.(*kvrpcpb.PrewriteRequest)
	if !ok || l.keys+l.bytes+l.value == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	txn := l.seen[prewrite.StartVersion]
	if txn == nil {
		txn = &size{keys: map[string]struct{}{}}
		l.seen[prewrite.StartVersion] = txn
	}
	for _, m := range prewrite.Mutations {
		if l.value > 0 && len(m.Value) > l.value {
			return status.Errorf(codes.InvalidArgument, "entry too large: %d bytes", len(m.Value))
		}
		if _, again := txn.keys[string(m.Key)]; again {
			continue
		}
		txn.keys[string(m.Key)] = struct{}{}
		txn.bytes += len(m.Key) + len(m.Value)
	}
	if l.keys > 0 && len(txn.keys) > l.keys {
		return status.Errorf(codes.InvalidArgument, "transaction too large: more than %d keys", l.keys)
	}
	if l.bytes > 0 && txn.bytes > l.bytes {
		return status.Errorf(codes.InvalidArgument, "transaction too large: more than %d bytes", l.bytes)
	}
	return nil
}
