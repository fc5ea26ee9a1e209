// The PD protocol: timestamps, regions, and the part of etcd that client-go uses.
package main

import (
	"bytes"
	"context"
	"sort"
	"sync"
	"time"

	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/tikv/client-go/v2/testutils"
	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const clusterID = 7000000000000000001

type pdSrv struct {
	pdpb.PDServer
	url       string
	cluster   *testutils.MockCluster
	clock     *clock
	faults    *faults
	mu        sync.Mutex
	safePoint uint64
}

// clock allocates timestamps.
type clock struct {
	mu      sync.Mutex
	phys    int64
	logical int64
}

func hdr() *pdpb.ResponseHeader { return &pdpb.ResponseHeader{ClusterId: clusterID} }

func (p *pdSrv) GetMembers(context.Context, *pdpb.GetMembersRequest) (*pdpb.GetMembersResponse, error) {
	m := &pdpb.Member{Name: "pd-mock", MemberId: 1, ClientUrls: []string{p.url}, PeerUrls: []string{p.url}}
	return &pdpb.GetMembersResponse{Header: hdr(), Members: []*pdpb.Member{m}, Leader: m, EtcdLeader: m}, nil
}
func (p *clock) alloc(n int64) (int64, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now().UnixMilli(); now > p.phys {
		p.phys, p.logical = now, 0
	}
	if p.logical+n >= 1<<18 {
		p.phys++
		p.logical = 0
	}
	p.logical += n
	return p.phys, p.logical
}
func (p *pdSrv) Tso(st pdpb.PD_TsoServer) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		n := int64(r.Count)
		if n == 0 {
			n = 1
		}
		p.faults.count("tso")
		ph, lo := p.clock.alloc(n)
		if err := st.Send(&pdpb.TsoResponse{Header: hdr(), Count: uint32(n), Timestamp: &pdpb.Timestamp{Physical: ph, Logical: lo}}); err != nil {
			return err
		}
	}
}
func (p *pdSrv) IsBootstrapped(context.Context, *pdpb.IsBootstrappedRequest) (*pdpb.IsBootstrappedResponse, error) {
	return &pdpb.IsBootstrappedResponse{Header: hdr(), Bootstrapped: true}, nil
}
func (p *pdSrv) AllocID(context.Context, *pdpb.AllocIDRequest) (*pdpb.AllocIDResponse, error) {
	return &pdpb.AllocIDResponse{Header: hdr(), Id: p.cluster.AllocID()}, nil
}
func (p *pdSrv) GetStore(_ context.Context, r *pdpb.GetStoreRequest) (*pdpb.GetStoreResponse, error) {
	s := p.cluster.GetStore(r.StoreId)
	if s == nil {
		return nil, status.Errorf(codes.Unknown, "invalid store ID %d, not found", r.StoreId)
	}
	return &pdpb.GetStoreResponse{Header: hdr(), Store: s}, nil
}
func (p *pdSrv) GetAllStores(context.Context, *pdpb.GetAllStoresRequest) (*pdpb.GetAllStoresResponse, error) {
	return &pdpb.GetAllStoresResponse{Header: hdr(), Stores: p.cluster.GetAllStores()}, nil
}
func region(m *metapb.Region, l *metapb.Peer) (*pdpb.GetRegionResponse, error) {
	return &pdpb.GetRegionResponse{Header: hdr(), Region: m, Leader: l}, nil
}
func (p *pdSrv) GetRegion(_ context.Context, r *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	return region(p.cluster.GetRegionByKey(r.RegionKey))
}
func (p *pdSrv) GetPrevRegion(_ context.Context, r *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	return region(p.cluster.GetPrevRegionByKey(r.RegionKey))
}
func (p *pdSrv) GetRegionByID(_ context.Context, r *pdpb.GetRegionByIDRequest) (*pdpb.GetRegionResponse, error) {
	return region(p.cluster.GetRegionByID(r.RegionId))
}
func (p *pdSrv) ScanRegions(_ context.Context, r *pdpb.ScanRegionsRequest) (*pdpb.ScanRegionsResponse, error) {
	out := &pdpb.ScanRegionsResponse{Header: hdr()}
	for _, x := range p.cluster.ScanRegions(r.StartKey, r.EndKey, int(r.Limit)) {
		l := x.Leader
		if l == nil {
			l = &metapb.Peer{}
		}
		out.Regions = append(out.Regions, &pdpb.Region{Region: x.Meta, Leader: l})
		out.RegionMetas = append(out.RegionMetas, x.Meta)
		out.Leaders = append(out.Leaders, l)
	}
	return out, nil
}
func (p *pdSrv) GetGCSafePoint(context.Context, *pdpb.GetGCSafePointRequest) (*pdpb.GetGCSafePointResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &pdpb.GetGCSafePointResponse{Header: hdr(), SafePoint: p.safePoint}, nil
}
func (p *pdSrv) UpdateGCSafePoint(_ context.Context, r *pdpb.UpdateGCSafePointRequest) (*pdpb.UpdateGCSafePointResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.SafePoint > p.safePoint {
		p.safePoint = r.SafePoint
	}
	return &pdpb.UpdateGCSafePointResponse{Header: hdr(), NewSafePoint: p.safePoint}, nil
}
func (p *pdSrv) UpdateServiceGCSafePoint(_ context.Context, r *pdpb.UpdateServiceGCSafePointRequest) (*pdpb.UpdateServiceGCSafePointResponse, error) {
	return &pdpb.UpdateServiceGCSafePointResponse{Header: hdr(), ServiceId: r.ServiceId, TTL: r.TTL, MinSafePoint: r.SafePoint}, nil
}

// etcd KV: client-go polls /tidb/store/gcworker/saved_safe_point on the PD port.
type etcdSrv struct {
	etcdpb.KVServer
	mu  sync.Mutex
	kv  map[string]string
	rev int64
}

func (e *etcdSrv) Range(_ context.Context, r *etcdpb.RangeRequest) (*etcdpb.RangeResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := &etcdpb.RangeResponse{Header: &etcdpb.ResponseHeader{Revision: e.rev}}
	for k, v := range e.kv {
		if k == string(r.Key) || (len(r.RangeEnd) > 0 && k >= string(r.Key) && k < string(r.RangeEnd)) {
			out.Kvs = append(out.Kvs, &mvccpb.KeyValue{Key: []byte(k), Value: []byte(v)})
		}
	}
	sort.Slice(out.Kvs, func(i, j int) bool { return bytes.Compare(out.Kvs[i].Key, out.Kvs[j].Key) < 0 })
	out.Count = int64(len(out.Kvs))
	return out, nil
}
func (e *etcdSrv) Put(_ context.Context, r *etcdpb.PutRequest) (*etcdpb.PutResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rev++
	e.kv[string(r.Key)] = string(r.Value)
	return &etcdpb.PutResponse{Header: &etcdpb.ResponseHeader{Revision: e.rev}}, nil
}
