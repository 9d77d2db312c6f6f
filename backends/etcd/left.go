package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/store"
)

// leftWithin bounds how long is waited for Record.Left, which is for people alone.
const leftWithin = 250 * time.Millisecond

// left fills in how long the record has left, in whole seconds and rounded down. That is a
// request of its own, as no read of keys tells it; without an answer it stays 0.
func (s *Store) left(ctx context.Context, r *store.Record) {
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	resp, err := s.client.Lease.TimeToLive(ctx, clientv3.LeaseID(r.Session))
	if err == nil && resp.TTL > 0 {
		r.Left = time.Duration(resp.TTL) * time.Second
	}
}
