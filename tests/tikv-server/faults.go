// Faults that tests inject into the next requests for some keys.
package main

import (
	"bytes"
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/pingcap/kvproto/pkg/errorpb"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/tikv/client-go/v2/testutils"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fault applies to the next requests of one method for a key with the prefix.
type fault struct {
	on     string // the method, such as KvCommit
	what   string // see inject
	prefix []byte
	times  int
	delay  time.Duration
}

type faults struct {
	mu      sync.Mutex
	queue   []*fault
	calls   map[string]uint64
	cluster *testutils.MockCluster
	limits  *limits
}

func (f *faults) count(method string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
}

func (f *faults) add(one *fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, one)
}

func (f *faults) next(method string, req interface{}) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, one := range f.queue {
		if one.on != method || !names(req, one.prefix) {
			continue
		}
		if one.times--; one.times <= 0 {
			f.queue = append(f.queue[:i:i], f.queue[i+1:]...)
		}
		return one
	}
	return nil
}

// inject is the interceptor of single requests.
func (f *faults) inject(ctx context.Context, req interface{}, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (interface{}, error) {
	return f.handle(ctx, path.Base(info.FullMethod), req, h)
}

// handle handles a request, either a single one or one of a stream.
func (f *faults) handle(ctx context.Context, method string, req interface{}, h grpc.UnaryHandler) (interface{}, error) {
	f.count(method)
	if err := f.limits.check(req); err != nil {
		return nil, err
	}
	one := f.next(method, req)
	if one == nil {
		return h(ctx, req)
	}
	switch one.what {
	case "late": // executed, long after the client has gone
		time.Sleep(one.delay)
		return h(context.Background(), req)
	case "decline": // does not commit in one phase, and reports it
		if prewrite, ok := req.(*kvrpcpb.PrewriteRequest); ok {
			prewrite.TryOnePc = false
		}
		return h(ctx, req)
	case "delay":
		time.Sleep(one.delay)
		return h(ctx, req)
	case "refuse": // not executed
		return nil, status.Error(codes.Unavailable, "refused on purpose")
	case "lose": // executed, and the response is lost
		_, _ = h(ctx, req)
		return nil, status.Error(codes.Unavailable, "response lost on purpose")
	case "hang": // not executed, no response
		<-ctx.Done()
		return nil, ctx.Err()
	case "lose-hang": // executed, no response
		_, _ = h(ctx, req)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if resp := f.regionError(req, one.what); resp != nil {
		return resp, nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "no fault %q for %s", one.what, method)
}

// regionError returns a response to the request with a region error.
func (f *faults) regionError(req interface{}, what string) interface{} {
	keys := keysOf(req)
	if len(keys) == 0 {
		return nil
	}
	region, leader := f.cluster.GetRegionByKey(encodeBytes(keys[0]))
	var e *errorpb.Error
	switch what {
	case "not-leader":
		e = &errorpb.Error{Message: "not leader", NotLeader: &errorpb.NotLeader{RegionId: region.Id, Leader: leader}}
	case "no-leader":
		e = &errorpb.Error{Message: "no leader", NotLeader: &errorpb.NotLeader{RegionId: region.Id}}
	case "stale-epoch":
		e = &errorpb.Error{Message: "stale epoch", EpochNotMatch: &errorpb.EpochNotMatch{CurrentRegions: []*metapb.Region{region}}}
	case "busy":
		e = &errorpb.Error{Message: "server is busy", ServerIsBusy: &errorpb.ServerIsBusy{Reason: "on purpose"}}
	case "new-leader": // does not know yet at which timestamps clients have read
		e = &errorpb.Error{Message: "max timestamp not synced", MaxTimestampNotSynced: &errorpb.MaxTimestampNotSynced{}}
	default:
		return nil
	}
	switch req.(type) {
	case *kvrpcpb.GetRequest:
		return &kvrpcpb.GetResponse{RegionError: e}
	case *kvrpcpb.BatchGetRequest:
		return &kvrpcpb.BatchGetResponse{RegionError: e}
	case *kvrpcpb.ScanRequest:
		return &kvrpcpb.ScanResponse{RegionError: e}
	case *kvrpcpb.PrewriteRequest:
		return &kvrpcpb.PrewriteResponse{RegionError: e}
	case *kvrpcpb.CommitRequest:
		return &kvrpcpb.CommitResponse{RegionError: e}
	case *kvrpcpb.BatchRollbackRequest:
		return &kvrpcpb.BatchRollbackResponse{RegionError: e}
	case *kvrpcpb.CheckTxnStatusRequest:
		return &kvrpcpb.CheckTxnStatusResponse{RegionError: e}
	}
	return nil
}

func names(req interface{}, prefix []byte) bool {
	for _, key := range keysOf(req) {
		if bytes.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func keysOf(req interface{}) [][]byte {
	switch r := req.(type) {
	case *kvrpcpb.GetRequest:
		return [][]byte{r.Key}
	case *kvrpcpb.BatchGetRequest:
		return r.Keys
	case *kvrpcpb.ScanRequest:
		return [][]byte{r.StartKey}
	case *kvrpcpb.PrewriteRequest:
		keys := make([][]byte, len(r.Mutations))
		for i, m := range r.Mutations {
			keys[i] = m.Key
		}
		return keys
	case *kvrpcpb.CommitRequest:
		return r.Keys
	case *kvrpcpb.BatchRollbackRequest:
		return r.Keys
	case *kvrpcpb.CheckTxnStatusRequest:
		return [][]byte{r.PrimaryKey}
	}
	return nil
}

func isFault(what string) bool {
	const all = " delay late refuse lose hang lose-hang decline not-leader no-leader stale-epoch busy new-leader "
	return strings.Contains(all, " "+what+" ")
}
