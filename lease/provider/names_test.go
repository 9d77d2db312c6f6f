package provider_test

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// nameMap is a backend of package pername: keys with a TTL each.
type nameMap struct {
	mu      sync.Mutex
	last    lease.Token
	records map[string]record
}

type record struct {
	lease.Record
	until time.Time
}

func (b *nameMap) Acquire(_ context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, held := b.records[c.Name]
	if held && time.Now().Before(old.until) && (old.Owner.Incarnation != s.Owner.Incarnation || old.Token != c.Supersedes) {
		return lease.Outcome{Record: old.Record}, nil
	}
	b.last++
	r := lease.Record{Name: c.Name, Owner: s.Owner, Session: s.ID, Token: b.last, Nonce: c.Nonce, TTL: s.TTL, Metadata: c.Metadata}
	b.records[c.Name] = record{r, time.Now().Add(s.TTL)}
	return lease.Outcome{OK: true, Record: r}, nil
}

func (b *nameMap) change(h lease.Held, f func(record)) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[h.Name]
	if ok = ok && time.Now().Before(r.until) && r.Held() == h; ok {
		f(r)
	}
	return ok, nil
}

func (b *nameMap) Renew(_ context.Context, s lease.Session, h lease.Held) (bool, error) {
	return b.change(h, func(r record) { b.records[h.Name] = record{r.Record, time.Now().Add(s.TTL)} })
}

func (b *nameMap) Release(_ context.Context, h lease.Held) (bool, error) {
	return b.change(h, func(record) { delete(b.records, h.Name) })
}

func (b *nameMap) Get(_ context.Context, name string) (lease.Record, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[name]
	return r.Record, ok && time.Now().Before(r.until), nil
}
