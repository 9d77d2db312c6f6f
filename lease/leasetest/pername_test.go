package leasetest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

// names is the backing of a small pername.Backend: each record has a TTL of its
// own.
type names struct {
	mu      sync.Mutex
	counter lease.Token
	records map[string]*named
	flaw    flaw
}

func newNames(f flaw) *names { return &names{records: map[string]*named{}, flaw: f} }

// ofNames tells whether f is one that a names has.
func (f flaw) ofNames() bool { return strings.HasPrefix(string(f), "Backend: ") }

// stored makes a store of them.
func stored(b pername.Backend) lease.Store {
	s, err := pername.New(b)
	if err != nil {
		panic(err)
	}
	return s
}

// onNames are the options for stores that package pername makes of such.
func onNames(backing func() *names) []Option {
	return []Option{LocalSessions(), ExpirySlack(1100 * time.Millisecond), Names(func(TB) func() pername.Backend {
		n := backing()
		return func() pername.Backend { return movingNames{n} }
	})}
}

// is tells whether r is what h means; the flaws are those that forget a part of it.
func (n *names) is(r *named, h lease.Held, byName, noToken, noNonce flaw) bool {
	switch {
	case r == nil:
		return false
	case n.flaw == flawless:
	case n.flaw == byName:
		return true
	case n.flaw == noToken:
		h.Token = r.Token
	case n.flaw == noNonce:
		h.Nonce = r.Nonce
	}
	return r.Held() == h
}

type named struct {
	lease.Record
	end time.Time
}

func (n *names) Limits() lease.StoreLimits {
	return lease.StoreLimits{Name: "names", NamesPerSession: 100}
}

// at returns the live record of a name.
func (n *names) at(ctx context.Context, name string) (*named, func(), error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	n.mu.Lock()
	r := n.records[name]
	if r != nil && !time.Now().Before(r.end) {
		delete(n.records, name)
		r = nil
	}
	return r, n.mu.Unlock, nil
}

func (n *names) put(r lease.Record, ttl time.Duration) lease.Record {
	n.counter++
	r.Token, r.TTL = n.counter, ttl
	n.records[r.Name] = &named{r, time.Now().Add(ttl)}
	return clone(r)
}

func clone(r lease.Record) lease.Record {
	r.Metadata = maps.Clone(r.Metadata)
	return r
}

func (r *named) public() lease.Record {
	out := clone(r.Record)
	out.Left = time.Until(r.end)
	return out
}

func (n *names) Acquire(ctx context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error) {
	r, unlock, err := n.at(ctx, c.Name)
	if err != nil {
		return lease.Outcome{}, err
	}
	defer unlock()
	if r != nil && (c.Supersedes != r.Token || r.Owner.Incarnation != s.Owner.Incarnation) {
		return lease.Outcome{Record: r.public()}, nil
	}
	won := n.put(lease.Record{
		Name: c.Name, Owner: s.Owner, Session: s.ID, Nonce: c.Nonce, Metadata: maps.Clone(c.Metadata),
	}, s.TTL)
	return lease.Outcome{OK: true, Record: won}, nil
}

func (n *names) Renew(ctx context.Context, s lease.Session, h lease.Held) (bool, error) {
	r, unlock, err := n.at(ctx, h.Name)
	if err != nil {
		return false, err
	}
	defer unlock()
	if r != nil && n.flaw == namesRenewSays {
		r.end = time.Now().Add(s.TTL)
	}
	if !n.is(r, h, namesRenewByName, namesRenewIgnoresToken, namesRenewIgnoresNonce) {
		return false, nil
	}
	r.end = time.Now().Add(s.TTL)
	return true, nil
}

func (n *names) Release(ctx context.Context, h lease.Held) (bool, error) {
	r, unlock, err := n.at(ctx, h.Name)
	if err != nil {
		return false, err
	}
	defer unlock()
	if !n.is(r, h, namesReleaseByName, namesReleaseNoToken, "") {
		return false, nil
	}
	delete(n.records, h.Name)
	return true, nil
}

func (n *names) Get(ctx context.Context, name string) (lease.Record, bool, error) {
	r, unlock, err := n.at(ctx, name)
	if err != nil {
		return lease.Record{}, false, err
	}
	defer unlock()
	if r == nil {
		return lease.Record{}, false, nil
	}
	return r.public(), true, nil
}

// movingNames can also transfer and list.
type movingNames struct{ *names }

func (n movingNames) Transfer(ctx context.Context, m lease.Transfer) (lease.Outcome, error) {
	r, unlock, err := n.at(ctx, m.Name)
	if err != nil {
		return lease.Outcome{}, err
	}
	defer unlock()
	if r == nil {
		return lease.Outcome{}, nil
	}
	if !n.is(r, m.Held, namesTransferByName, "", namesTransferNoNonce) {
		return lease.Outcome{Record: r.public()}, nil
	}
	metadata := r.Metadata
	if m.Metadata != nil {
		metadata = maps.Clone(m.Metadata)
	}
	moved := n.put(lease.Record{
		Name: m.Name, Owner: m.To.Owner, Session: m.To.Session, Nonce: m.To.Nonce, Metadata: metadata,
	}, m.To.TTL)
	return lease.Outcome{OK: true, Record: moved}, nil
}

func (n movingNames) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		n.mu.Lock()
		all := slices.Collect(maps.Keys(n.records))
		n.mu.Unlock()
		for _, name := range all {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			r, ok, err := n.Get(ctx, name)
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			if ok && !yield(r, nil) {
				return
			}
		}
	}
}

// TestPerName runs the kit over stores that package pername makes, each client
// with sessions of its own.
func TestPerName(t *testing.T) {
	for _, c := range []struct {
		name   string
		client func(*names) pername.Backend
	}{
		{"names only", func(n *names) pername.Backend { return n }},
		{"with transfer and list", func(n *names) pername.Backend { return movingNames{n} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			Run(t, func(TB) func() lease.Store {
				n := newNames(flawless)
				return func() lease.Store { return stored(c.client(n)) }
			}, append(onNames(func() *names { return newNames(flawless) }), FakeTime())...)
		})
	}
}
