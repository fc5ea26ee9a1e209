// The TiKV protocol as client-go speaks it: many requests in one stream.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
)

// BatchCommands is what client-go (JuiceFS) uses; tikv-client 0.4.0 does not.
func (s *tikvSrv) BatchCommands(st tikvpb.Tikv_BatchCommandsServer) error {
	var mu sync.Mutex
	for {
		in, err := st.Recv()
		if err != nil {
			return err
		}
		for i := range in.Requests {
			go func(id uint64, q *tikvpb.BatchCommandsRequest_Request) {
				p, err := s.one(st.Context(), q)
				if err != nil {
					// The protocol has no response for this: leave it out, as if it were lost.
					log.Printf("batch command %T: %v", q.Cmd, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				_ = st.Send(&tikvpb.BatchCommandsResponse{RequestIds: []uint64{id}, Responses: []*tikvpb.BatchCommandsResponse_Response{p}})
			}(in.RequestIds[i], in.Requests[i])
		}
	}
}

// withFaults executes a request like a single one: counted, limited, and with injected faults.
func withFaults[Q, R any](ctx context.Context, s *tikvSrv, method string, execute func(context.Context, Q) (R, error), req Q) (R, error) {
	resp, err := s.faults.handle(ctx, method, req, func(ctx context.Context, req interface{}) (interface{}, error) {
		return execute(ctx, req.(Q))
	})
	answer, _ := resp.(R)
	return answer, err
}

func (s *tikvSrv) one(ctx context.Context, q *tikvpb.BatchCommandsRequest_Request) (out *tikvpb.BatchCommandsResponse_Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	out = &tikvpb.BatchCommandsResponse_Response{}
	switch c := q.Cmd.(type) {
	case *tikvpb.BatchCommandsRequest_Request_Get:
		var r *kvrpcpb.GetResponse
		r, err = withFaults(ctx, s, "KvGet", s.KvGet, c.Get)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Get{Get: r}
	case *tikvpb.BatchCommandsRequest_Request_Scan:
		var r *kvrpcpb.ScanResponse
		r, err = withFaults(ctx, s, "KvScan", s.KvScan, c.Scan)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Scan{Scan: r}
	case *tikvpb.BatchCommandsRequest_Request_BatchGet:
		var r *kvrpcpb.BatchGetResponse
		r, err = withFaults(ctx, s, "KvBatchGet", s.KvBatchGet, c.BatchGet)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_BatchGet{BatchGet: r}
	case *tikvpb.BatchCommandsRequest_Request_Prewrite:
		var r *kvrpcpb.PrewriteResponse
		r, err = withFaults(ctx, s, "KvPrewrite", s.KvPrewrite, c.Prewrite)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Prewrite{Prewrite: r}
	case *tikvpb.BatchCommandsRequest_Request_Commit:
		var r *kvrpcpb.CommitResponse
		r, err = withFaults(ctx, s, "KvCommit", s.KvCommit, c.Commit)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Commit{Commit: r}
	case *tikvpb.BatchCommandsRequest_Request_Cleanup:
		var r *kvrpcpb.CleanupResponse
		r, err = withFaults(ctx, s, "KvCleanup", s.KvCleanup, c.Cleanup)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Cleanup{Cleanup: r}
	case *tikvpb.BatchCommandsRequest_Request_BatchRollback:
		var r *kvrpcpb.BatchRollbackResponse
		r, err = withFaults(ctx, s, "KvBatchRollback", s.KvBatchRollback, c.BatchRollback)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_BatchRollback{BatchRollback: r}
	case *tikvpb.BatchCommandsRequest_Request_ScanLock:
		var r *kvrpcpb.ScanLockResponse
		r, err = withFaults(ctx, s, "KvScanLock", s.KvScanLock, c.ScanLock)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_ScanLock{ScanLock: r}
	case *tikvpb.BatchCommandsRequest_Request_ResolveLock:
		var r *kvrpcpb.ResolveLockResponse
		r, err = withFaults(ctx, s, "KvResolveLock", s.KvResolveLock, c.ResolveLock)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_ResolveLock{ResolveLock: r}
	case *tikvpb.BatchCommandsRequest_Request_PessimisticLock:
		var r *kvrpcpb.PessimisticLockResponse
		r, err = withFaults(ctx, s, "KvPessimisticLock", s.KvPessimisticLock, c.PessimisticLock)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_PessimisticLock{PessimisticLock: r}
	case *tikvpb.BatchCommandsRequest_Request_PessimisticRollback:
		var r *kvrpcpb.PessimisticRollbackResponse
		r, err = withFaults(ctx, s, "KVPessimisticRollback", s.KVPessimisticRollback, c.PessimisticRollback)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_PessimisticRollback{PessimisticRollback: r}
	case *tikvpb.BatchCommandsRequest_Request_CheckTxnStatus:
		var r *kvrpcpb.CheckTxnStatusResponse
		r, err = withFaults(ctx, s, "KvCheckTxnStatus", s.KvCheckTxnStatus, c.CheckTxnStatus)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_CheckTxnStatus{CheckTxnStatus: r}
	case *tikvpb.BatchCommandsRequest_Request_TxnHeartBeat:
		var r *kvrpcpb.TxnHeartBeatResponse
		r, err = withFaults(ctx, s, "KvTxnHeartBeat", s.KvTxnHeartBeat, c.TxnHeartBeat)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_TxnHeartBeat{TxnHeartBeat: r}
	case *tikvpb.BatchCommandsRequest_Request_DeleteRange:
		var r *kvrpcpb.DeleteRangeResponse
		r, err = withFaults(ctx, s, "KvDeleteRange", s.KvDeleteRange, c.DeleteRange)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_DeleteRange{DeleteRange: r}
	case *tikvpb.BatchCommandsRequest_Request_GC:
		var r *kvrpcpb.GCResponse
		r, err = withFaults(ctx, s, "KvGC", s.KvGC, c.GC)
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_GC{GC: r}
	case *tikvpb.BatchCommandsRequest_Request_Empty:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Empty{Empty: &tikvpb.BatchCommandsEmptyResponse{TestId: c.Empty.TestId}}
	default:
		err = fmt.Errorf("unsupported batch command")
	}
	return out, err
}
