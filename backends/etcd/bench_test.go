//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// benchStore returns a store over a server of its own, and how many requests it has made.
func benchStore(b *testing.B) (store.Store, *atomic.Int64) {
	var n atomic.Int64
	client := etcdtest.Start(b).Client(b, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				n.Add(1)
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
	})
	return newStore(b, client, fresh()), &n
}

// BenchmarkReconciliation compares what a Keeper with 1000 of 100 000 names, held in
// sessions of 1000, asks of etcd in one full round: the records of its session, or all.
func BenchmarkReconciliation(b *testing.B) {
	const all, each = 100_000, 1000
	s, n := benchStore(b)
	var mine store.Session
	for i := range all / each {
		owner := store.Owner{ID: "n", Incarnation: fmt.Sprint("n-", i)}
		mine = store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: owner}
		if g, err := s.OpenSession(b.Context(), mine); err != nil || g.Err != nil {
			b.Fatal(err, g.Err)
		}
		claims := make([]store.Claim, each)
		for j := range claims { // spread over the nodes
			claims[j] = store.Claim{Name: fmt.Sprintf("shard/%05d", j*all/each+i), Nonce: uint64(j + 1)}
		}
		if _, err := s.Acquire(b.Context(), mine, claims); err != nil {
			b.Fatal(err)
		}
	}
	run := func(name string, read func() (records int)) {
		b.Run(name, func(b *testing.B) {
			records, rounds := 0, 0
			n.Store(0)
			for b.Loop() {
				records += read()
				rounds++
			}
			b.ReportMetric(float64(n.Load())/float64(rounds), "requests/round")
			b.ReportMetric(float64(records)/float64(rounds), "records/round")
		})
	}
	run("by session", func() (records int) {
		for _, err := range s.List(b.Context(), store.Query{Session: mine.ID}) {
			if err != nil {
				b.Fatal(err)
			}
			records++
		}
		return records
	})
	run("everything", func() (records int) {
		for _, err := range s.List(b.Context(), store.Query{}) {
			if err != nil {
				b.Fatal(err)
			}
			records++
		}
		return records
	})
}

// BenchmarkKeeperGet asks for one name that is held.
func BenchmarkKeeperGet(b *testing.B) {
	s, n := benchStore(b)
	k, err := lease.NewKeeper(s, lease.Config{ID: "bench", TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close(context.Background())
	h, err := k.Lease("bench")
	if err != nil {
		b.Fatal(err)
	}
	if won, err := h.Acquire(b.Context()); !won || err != nil {
		b.Fatal(won, err)
	}
	defer h.Release(context.Background())
	b.ReportAllocs()
	n.Store(0)
	rounds := 0
	for b.Loop() {
		if _, err := k.Get(b.Context(), "bench"); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	b.ReportMetric(float64(n.Load())/float64(rounds), "requests/op")
}
