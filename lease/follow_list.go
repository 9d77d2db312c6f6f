package lease

import (
	"context"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"
)

// This file follows records where the store can't watch: by listings that are made into
// events, and by looks at single names where it gives hints.

// listener is a follower's ear for hints. It is guarded by Keeper.mu.
type listener struct {
	looker
	prefix string
	exact  bool          // that name alone
	wake   chan struct{} // has room for one: something is pending
}

// hears reports whether a hint of name is for it.
func (l *listener) hears(name string) bool {
	return name == l.prefix || !l.exact && strings.HasPrefix(name, l.prefix)
}

// want adds a name under the prefix; "": all of them.
func (l *listener) want(name string) {
	if len(l.names) >= mostHinted {
		name = ""
	}
	l.looker.want(name)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// poll lists, PollMin apart with jitter. While hints come it looks when it is hinted, and
// lists PollMax apart.
func (f *follower) poll(ctx context.Context) {
	k := f.k
	l := &listener{looker: looker{at: k.clock.Now().Mono}, prefix: f.prefix, exact: f.name != "", wake: make(chan struct{}, 1)}
	k.mu.Lock()
	l.want("")
	k.hintsLocked()
	k.hinting.listeners[l] = struct{}{}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.hinting.listeners, l)
	}()
	var relist time.Duration // when a listing is due, however many names are hinted
	for ctx.Err() == nil {
		anew := f.renew()
		k.mu.Lock()
		began := k.clock.Now().Mono
		names, all := l.begin()
		k.mu.Unlock()
		var err error
		if f.name != "" || all || anew || len(names) == 0 || !f.synced || began >= relist {
			err = f.list(ctx)
			relist = began + k.cfg.PollMax
		} else {
			err = f.lookAt(slices.Sorted(maps.Keys(names)))
		}
		if ctx.Err() != nil {
			return
		}
		f.interrupted(err)
		k.mu.Lock()
		l.end(began, k.clock.Now().Mono, hintRest)
		if err != nil { // what was missed is found by a listing
			l.want("")
		}
		k.mu.Unlock()
		f.restFrom(ctx, l, err != nil, all || len(names) > 0)
	}
}

// lookWithin is the longest pause between listings.
func lookWithin(least time.Duration) time.Duration { return least * 3 / 2 }

// restFrom waits for the next look: after one that failed for PollMin, whatever is hinted;
// after one that was hinted no longer than that, in case the hint was early.
func (f *follower) restFrom(ctx context.Context, l *listener, failed, hinted bool) {
	k := f.k
	began := k.clock.Now().Mono
	least := time.Duration(float64(k.cfg.PollMin) * (0.5 + mrand.Float64()))
	most := k.cfg.PollMax*3/4 + time.Duration(mrand.Float64()*float64(k.cfg.PollMax)/4)
	for ctx.Err() == nil {
		k.mu.Lock()
		at := began + least
		if !failed && k.hinting.on && !hinted {
			at = began + most
		}
		if !failed && l.pending() {
			at = min(at, l.at)
		}
		k.mu.Unlock()
		now := k.clock.Now().Mono
		if now >= at {
			return
		}
		k.rest(ctx, at-now, l.wake)
	}
}

// lookAt makes a look at names into events.
func (f *follower) lookAt(names []string) error {
	found, err := f.k.get(context.Background(), names)
	if err != nil {
		return err
	}
	for _, name := range names {
		rec, ok := found[name]
		if !ok {
			if m, stood := f.heard.stands[name]; stood {
				f.gone(name, m)
			}
			continue
		}
		if err := f.read(rec); err != nil {
			return err
		}
	}
	return nil
}

// read takes up one record as it was read.
func (f *follower) read(rec Record) error {
	if rec.bad() {
		f.bad(Event{Kind: EventBad, Record: rec})
		return nil
	}
	if err := f.judge(rec); err != nil {
		return err
	}
	f.put(Event{Kind: EventPut, Record: rec, Revision: rec.Token})
	return nil
}

// gone tells that what stood does not any more.
func (f *follower) gone(name string, m mark) {
	f.delete(Event{Kind: EventDelete, Record: Record{Name: name, Token: m.token}, Revision: m.token})
}
