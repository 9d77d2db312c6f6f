//go:build linux

package nodes

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lease"
)

// witness is a store that notes what the real one confirmed, and when that was
// asked, and what it was asked to end: a judge that does not trust the Keeper. It has every
// optional capability of a store; where the real one lacks it, the answer is
// lease.ErrUnsupported.
type witness struct {
	lease.Store
	journal *journal
	names   names

	mu   sync.Mutex
	open map[lease.SessionID]bool
}

// sessions is how many are open.
func (w *witness) sessions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

func (w *witness) opened(id lease.SessionID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.open[id] = true
	} else {
		delete(w.open, id)
	}
}

// historian is a witness of a store that minds its history.
type historian struct {
	*witness
	lease.Historian
}

// witnessed returns a witness of a store.
func witnessed(s lease.Store, j *journal, n names) (lease.Store, *witness) {
	w := &witness{Store: s, journal: j, names: n, open: map[lease.SessionID]bool{}}
	if h, ok := s.(lease.Historian); ok {
		return historian{w, h}, w
	}
	return w, w
}

// OpenSession implements lease.Store.
func (w *witness) OpenSession(ctx context.Context, s lease.Session) (lease.Grant, error) {
	sent := machine.Now()
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil {
		w.opened(s.ID, true)
		w.confirm(s, entry{sent: sent}, g)
	}
	return g, err
}

// Renew implements lease.Store.
func (w *witness) Renew(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	sent := machine.Now()
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
		e.at, e.kind, e.token, e.seq = machine.Now(), confirmed, uint64(s.ID), uint64(g.TTL)
		w.journal.Note(e)
	}
}

// CloseSession implements lease.Store.
func (w *witness) CloseSession(ctx context.Context, s lease.Session) error {
	w.journal.Note(entry{at: machine.Now(), kind: closed, token: uint64(s.ID)})
	err := w.Store.CloseSession(ctx, s)
	if err == nil {
		w.opened(s.ID, false)
	}
	return err
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
	t, ok := w.Store.(lease.TransferStore)
	if !ok {
		return nil, lease.ErrUnsupported
	}
	for _, m := range moves {
		w.giveUp(m.Held)
	}
	return t.Transfer(ctx, moves)
}

// Limits implements lease.Limiter.
func (w *witness) Limits() (none lease.StoreLimits) {
	if l, ok := w.Store.(lease.Limiter); ok {
		return l.Limits()
	}
	return none
}

// Endpoints implements lease.Located.
func (w *witness) Endpoints() []string {
	if l, ok := w.Store.(lease.Located); ok {
		return l.Endpoints()
	}
	return nil
}

// Probe implements lease.Prober.
func (w *witness) Probe(ctx context.Context) error {
	if p, ok := w.Store.(lease.Prober); ok {
		return p.Probe(ctx)
	}
	return lease.ErrUnsupported
}

// Watch implements lease.Watcher.
func (w *witness) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	if x, ok := w.Store.(lease.Watcher); ok {
		return x.Watch(ctx, prefix)
	}
	return unsupported[lease.Event]
}

// WatchDeletions implements lease.DeletionWatcher.
func (w *witness) WatchDeletions(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	if x, ok := w.Store.(lease.DeletionWatcher); ok {
		return x.WatchDeletions(ctx, prefix)
	}
	return unsupported[lease.Event]
}

// ListSession implements lease.SessionLister.
func (w *witness) ListSession(ctx context.Context, s lease.Session) iter.Seq2[lease.Record, error] {
	if x, ok := w.Store.(lease.SessionLister); ok {
		return x.ListSession(ctx, s)
	}
	return unsupported[lease.Record]
}

func unsupported[T any](yield func(T, error) bool) {
	var none T
	yield(none, lease.ErrUnsupported)
}

func (w *witness) giveUp(h lease.Held) {
	if i, ok := w.names.number(h.Name); ok {
		w.journal.Note(entry{at: machine.Now(), kind: gaveUp, name: uint16(i), token: uint64(h.Token)})
	}
}

// The names of the leases that actors run under, without their numbers.
const (
	singletonLease = "singleton/lab-"
	shardLease     = "shard/lab/account/"
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
