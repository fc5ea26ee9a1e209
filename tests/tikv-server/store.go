// The TiKV protocol: passes single requests of tikv-client to mocktikv, and corrects its responses
// where they differ from those of a real server.
package main

import (
	"bytes"
	"context"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikvrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type tikvSrv struct {
	tikvpb.TikvServer // nil: any method not overridden panics -> Unimplemented
	addr              string
	cli               *testutils.MockClient
	clock             *clock
	faults            *faults
}

// call forwards one decoded gRPC request to mocktikv's dispatcher.
func call[R any](s *tikvSrv, ctx context.Context, cmd tikvrpc.CmdType, req interface{}, kctx *kvrpcpb.Context) (R, error) {
	var zero R
	r := tikvrpc.NewRequest(cmd, req)
	if kctx != nil {
		r.Context = *kctx
	}
	resp, err := s.cli.SendRequest(ctx, s.addr, r, time.Minute)
	if err != nil {
		return zero, status.Error(codes.Unavailable, err.Error())
	}
	return resp.Resp.(R), nil
}

func (s *tikvSrv) KvGet(ctx context.Context, r *kvrpcpb.GetRequest) (*kvrpcpb.GetResponse, error) {
	resp, err := call[*kvrpcpb.GetResponse](s, ctx, tikvrpc.CmdGet, r, r.Context)
	if err == nil && resp.RegionError == nil && resp.Error == nil && resp.Value == nil {
		resp.NotFound = true // mocktikv leaves this out; real TiKV sets it
	}
	return resp, err
}
func (s *tikvSrv) KvScan(ctx context.Context, r *kvrpcpb.ScanRequest) (*kvrpcpb.ScanResponse, error) {
	resp, err := call[*kvrpcpb.ScanResponse](s, ctx, tikvrpc.CmdScan, r, r.Context)
	if err == nil && r.KeyOnly {
		for _, p := range resp.Pairs {
			p.Value = nil
		}
	}
	return resp, err
}
func (s *tikvSrv) KvBatchGet(ctx context.Context, r *kvrpcpb.BatchGetRequest) (*kvrpcpb.BatchGetResponse, error) {
	return call[*kvrpcpb.BatchGetResponse](s, ctx, tikvrpc.CmdBatchGet, r, r.Context)
}
func (s *tikvSrv) KvPrewrite(ctx context.Context, r *kvrpcpb.PrewriteRequest) (*kvrpcpb.PrewriteResponse, error) {
	onePc := r.TryOnePc
	r.TryOnePc = false
	resp, err := call[*kvrpcpb.PrewriteResponse](s, ctx, tikvrpc.CmdPrewrite, r, r.Context)
	if !onePc || err != nil || resp.RegionError != nil || len(resp.Errors) > 0 {
		return resp, err
	}
	// mocktikv does not commit in one phase. Other clients may see the locks for a moment here.
	ph, lo := s.clock.alloc(1)
	ts := uint64(ph)<<18 + uint64(lo)
	keys := make([][]byte, len(r.Mutations))
	for i, m := range r.Mutations {
		keys[i] = m.Key
	}
	commit := &kvrpcpb.CommitRequest{Context: r.Context, StartVersion: r.StartVersion, Keys: keys, CommitVersion: ts}
	done, err := call[*kvrpcpb.CommitResponse](s, ctx, tikvrpc.CmdCommit, commit, r.Context)
	if err != nil || done.RegionError != nil || done.Error != nil {
		return resp, err // the locks stay: the client continues in two phases
	}
	resp.OnePcCommitTs = ts
	return resp, nil
}
func (s *tikvSrv) KvCommit(ctx context.Context, r *kvrpcpb.CommitRequest) (*kvrpcpb.CommitResponse, error) {
	return call[*kvrpcpb.CommitResponse](s, ctx, tikvrpc.CmdCommit, r, r.Context)
}
func (s *tikvSrv) KvPessimisticLock(ctx context.Context, r *kvrpcpb.PessimisticLockRequest) (*kvrpcpb.PessimisticLockResponse, error) {
	resp, err := call[*kvrpcpb.PessimisticLockResponse](s, ctx, tikvrpc.CmdPessimisticLock, r, r.Context)
	if err != nil || resp.RegionError != nil || len(resp.Errors) > 0 || !(r.ReturnValues || r.CheckExistence) {
		return resp, err
	}
	// mocktikv v2.0.1 returns nothing for keys this txn already holds and
	// treats empty values as absent: recompute, the keys are locked by us.
	resp.Values, resp.NotFounds = nil, nil
	for _, m := range r.Mutations {
		v, gerr := s.cli.MvccStore.Get(m.Key, r.ForUpdateTs, kvrpcpb.IsolationLevel_SI, nil)
		if gerr != nil {
			return nil, status.Error(codes.Internal, gerr.Error())
		}
		resp.NotFounds = append(resp.NotFounds, v == nil)
		if r.ReturnValues {
			resp.Values = append(resp.Values, v)
		}
	}
	return resp, nil
}
func (s *tikvSrv) KVPessimisticRollback(ctx context.Context, r *kvrpcpb.PessimisticRollbackRequest) (*kvrpcpb.PessimisticRollbackResponse, error) {
	return call[*kvrpcpb.PessimisticRollbackResponse](s, ctx, tikvrpc.CmdPessimisticRollback, r, r.Context)
}
func (s *tikvSrv) KvTxnHeartBeat(ctx context.Context, r *kvrpcpb.TxnHeartBeatRequest) (*kvrpcpb.TxnHeartBeatResponse, error) {
	return call[*kvrpcpb.TxnHeartBeatResponse](s, ctx, tikvrpc.CmdTxnHeartBeat, r, r.Context)
}
func (s *tikvSrv) KvCheckTxnStatus(ctx context.Context, r *kvrpcpb.CheckTxnStatusRequest) (*kvrpcpb.CheckTxnStatusResponse, error) {
	resp, err := call[*kvrpcpb.CheckTxnStatusResponse](s, ctx, tikvrpc.CmdCheckTxnStatus, r, r.Context)
	if err == nil && resp.RegionError == nil && resp.Error == nil && resp.LockTtl > 0 && resp.LockInfo == nil {
		// Real TiKV always sends the lock with a TTL; tikv-client 0.4.0 panics without it.
		resp.LockInfo = &kvrpcpb.LockInfo{Key: r.PrimaryKey, PrimaryLock: r.PrimaryKey, LockVersion: r.LockTs, LockTtl: resp.LockTtl}
		if d, ok := s.cli.MvccStore.(interface {
			MvccGetByKey([]byte) *kvrpcpb.MvccInfo
		}); ok {
			if i := d.MvccGetByKey(r.PrimaryKey); i != nil && i.Lock != nil {
				resp.LockInfo.LockType = i.Lock.Type
			}
		}
	}
	return resp, err
}
func (s *tikvSrv) KvCleanup(ctx context.Context, r *kvrpcpb.CleanupRequest) (*kvrpcpb.CleanupResponse, error) {
	return call[*kvrpcpb.CleanupResponse](s, ctx, tikvrpc.CmdCleanup, r, r.Context)
}
func (s *tikvSrv) KvBatchRollback(ctx context.Context, r *kvrpcpb.BatchRollbackRequest) (*kvrpcpb.BatchRollbackResponse, error) {
	return call[*kvrpcpb.BatchRollbackResponse](s, ctx, tikvrpc.CmdBatchRollback, r, r.Context)
}
func (s *tikvSrv) KvScanLock(ctx context.Context, r *kvrpcpb.ScanLockRequest) (*kvrpcpb.ScanLockResponse, error) {
	resp, err := call[*kvrpcpb.ScanLockResponse](s, ctx, tikvrpc.CmdScanLock, r, r.Context)
	if err != nil {
		return resp, err
	}
	// mocktikv ignores start/end/limit.
	out := resp.Locks[:0]
	for _, l := range resp.Locks {
		if bytes.Compare(l.Key, r.StartKey) >= 0 && (len(r.EndKey) == 0 || bytes.Compare(l.Key, r.EndKey) < 0) {
			if r.Limit == 0 || len(out) < int(r.Limit) {
				out = append(out, l)
			}
		}
	}
	resp.Locks = out
	return resp, nil
}
func (s *tikvSrv) KvResolveLock(ctx context.Context, r *kvrpcpb.ResolveLockRequest) (*kvrpcpb.ResolveLockResponse, error) {
	return call[*kvrpcpb.ResolveLockResponse](s, ctx, tikvrpc.CmdResolveLock, r, r.Context)
}
func (s *tikvSrv) KvGC(ctx context.Context, r *kvrpcpb.GCRequest) (*kvrpcpb.GCResponse, error) {
	return call[*kvrpcpb.GCResponse](s, ctx, tikvrpc.CmdGC, r, r.Context)
}
func (s *tikvSrv) KvDeleteRange(ctx context.Context, r *kvrpcpb.DeleteRangeRequest) (*kvrpcpb.DeleteRangeResponse, error) {
	return call[*kvrpcpb.DeleteRangeResponse](s, ctx, tikvrpc.CmdDeleteRange, r, r.Context)
}
func (s *tikvSrv) SplitRegion(ctx context.Context, r *kvrpcpb.SplitRegionRequest) (*kvrpcpb.SplitRegionResponse, error) {
	return call[*kvrpcpb.SplitRegionResponse](s, ctx, tikvrpc.CmdSplitRegion, r, r.Context)
}
func (s *tikvSrv) UnsafeDestroyRange(ctx context.Context, r *kvrpcpb.UnsafeDestroyRangeRequest) (*kvrpcpb.UnsafeDestroyRangeResponse, error) {
	if err := s.cli.MvccStore.DeleteRange(r.StartKey, r.EndKey); err != nil {
		return nil, err
	}
	return &kvrpcpb.UnsafeDestroyRangeResponse{}, nil
}
