package lease

import (
	"context"
	mrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// This file follows records where the store can't watch: listings, or looks at the one name that
// is followed, become events.

// poll looks, PollMin apart with jitter, and at once when an era ends.
func (f *follower) poll(ctx context.Context) {
	k := f.k
	k.polls(+1)
	defer k.polls(-1)
	for ctx.Err() == nil {
		f.renew()
		err := f.list(ctx)
		if ctx.Err() != nil {
			return
		}
		f.interrupted(err)
		k.rest(ctx, time.Duration(float64(k.cfg.PollMin)*(0.5+mrand.Float64())), f.era.ctx.Done())
	}
}

// polls counts by more, or fewer, followers that poll.
func (k *Keeper) polls(by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.polling += by
}

// rest waits on the Keeper's clock, until woken at the latest.
func (k *Keeper) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	over := make(chan struct{})
	defer k.clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
	case <-wake:
	case <-ctx.Done():
	}
}

// look makes a look at the one name that is followed into events.
func (f *follower) look() error {
	found, err := f.k.get(context.Background(), []string{f.name})
	if err != nil {
		return err
	}
	if rec, ok := found[f.name]; ok {
		err = f.read(rec)
	} else if m, stood := f.heard.stands[f.name]; stood {
		f.gone(f.name, m)
	}
	if err == nil {
		f.caught()
	}
	return err
}

// read takes up one record as it was read.
func (f *follower) read(rec Record) error {
	if rec.Token == 0 { // it is no record
		f.bad(store.Event{Kind: store.EventBad, Record: rec})
		return nil
	}
	if err := f.judge(rec); err != nil {
		return err
	}
	f.put(store.Event{Kind: store.EventPut, Record: rec, Revision: rec.Token})
	return nil
}

// gone tells that what stood does not any more.
func (f *follower) gone(name string, m mark) {
	f.delete(store.Event{Kind: store.EventDelete, Record: Record{Name: name, Token: m.token}, Revision: m.token})
}
