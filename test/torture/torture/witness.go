//go:build linux

package torture

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/test/cluster"
)

// witness is a store that notes what the real one confirmed, and when that was
// asked, and what it was asked to end: a judge that does not trust the Keeper.
type witness struct {
	*etcd.Store
	journal *journal
	names   names
}

// OpenSession implements lease.Store.
func (w *witness) OpenSession(ctx context.Context, s lease.Session) (lease.Grant, error) {
	sent := cluster.Now()
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil {
		w.confirm(s, entry{sent: sent}, g)
	}
	return g, err
}

// Renew implements lease.Store.
func (w *witness) Renew(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	sent := cluster.Now()
	gs, err := w.Store.Renew(ctx, sessions)
	if err == nil {
		for i, g := range gs {
			w.confirm(sessions[i], entry{sent: sent}, g)
		}
	}
	return gs, err
}

func (w *witness) confirm(s lease.Session, e entry, g lease.Grant) {
	if g.Err == nil {
		e.at, e.kind, e.token, e.seq = cluster.Now(), confirmed, uint64(s.ID), uint64(g.TTL)
		w.journal.note(e)
	}
}

// CloseSession implements lease.Store.
func (w *witness) CloseSession(ctx context.Context, s lease.Session) error {
	w.journal.note(entry{at: cluster.Now(), kind: closed, token: uint64(s.ID)})
	return w.Store.CloseSession(ctx, s)
}

// Release implements lease.Store.
func (w *witness) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	for _, h := range held {
		w.giveUp(h)
	}
	return w.Store.Release(ctx, held)
}

// Transfer implements lease.TransferStore.
func (w *witness) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	for _, m := range moves {
		w.giveUp(m.Held)
	}
	return w.Store.Transfer(ctx, moves)
}

func (w *witness) giveUp(h lease.Held) {
	if i, ok := w.names.number(h.Name); ok {
		w.journal.note(entry{at: cluster.Now(), kind: gaveUp, name: uint16(i), token: uint64(h.Token)})
	}
}

// The names of the leases that actors run under, without their numbers.
const (
	singletonLease = "singleton/torture-"
	shardLease     = "shard/torture/account/"
)

// number is that of the name with a lease; false if actors run under no such.
func (n names) number(name string) (int, bool) {
	after, first, bound := "", 0, n.Singletons
	var ok bool
	if after, ok = strings.CutPrefix(name, singletonLease); !ok {
		if after, ok = strings.CutPrefix(name, shardLease); !ok {
			return 0, false
		}
		first, bound = n.Singletons, n.Shards
	}
	i, err := strconv.Atoi(after)
	return first + i, err == nil && i >= 0 && i < bound
}
