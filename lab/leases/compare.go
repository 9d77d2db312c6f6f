//go:build linux

package leases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// sizes say how much is compared.
type sizes struct {
	ttl       time.Duration // of leases, sessions and the leader table, renewed each third of it
	turns     int           // acquisitions by each way
	handOvers int           // by each way
	patience  time.Duration // what one call may take
}

func sizesOf(run *scene.Run) sizes {
	s := sizes{ttl: 5 * time.Second, turns: 1000, handOvers: 200, patience: 10 * time.Second}
	if run.Short {
		s = sizes{ttl: 3 * time.Second, turns: 20, handOvers: 3, patience: 30 * time.Second}
	}
	return s
}

// compare runs leases beside what people use on the same server: the etcd client's own package
// concurrency and the bare requests, or session advisory locks that are polled for and a leader table
// in the manner of River's.
func compare(ctx context.Context, run *scene.Run) {
	p := sizesOf(run)
	b, of := compared(ctx, run, storeOf(run), p.ttl)
	defer b.close()
	t := newTurns(ctx, b, p, of)
	for range p.turns {
		t.turn(ctx)
	}
	t.print(run)
	t.end()
	ratio := func(what string, took map[string][]time.Duration, way string, most float64) {
		got := float64(scene.Percentile(took[holdfast], 50)) / float64(scene.Percentile(took[way], 50))
		run.AtMost(fmt.Sprintf("%s p50, ours to %s", what, way), got, most, "")
	}
	over := handOvers(ctx, b, p, of)
	for _, way := range waysOn(of.Store) {
		run.Spread("hand-over by release, "+way, over[way])
	}
	run.Within("longest hand-over of ours by release", scene.Percentile(over[holdfast], 100), p.ttl/2) // else it was no release
	if of.Store == onEtcd && !run.Short {
		ratio("acquire", t.acquired, ownSession, 0.5)
		ratio("hand-over", over, bare, 1.5)
	}
}

// compared runs a server for a comparison, and says how its names are held.
func compared(ctx context.Context, run *scene.Run, store string, ttl time.Duration) (*bed, holding) {
	b := newBed(ctx, run, store, ttl)
	of := holding{Store: store, TTL: ttl}
	if b.etcd != nil {
		of.URL = b.member().Direct()
	} else {
		conn := b.opened(ctx, leaderSchema)
		c := conn.Config()
		of.URL = fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", c.User, c.Database, url.QueryEscape(c.Host), c.Port)
		hangUp(conn)
	}
	return b, of
}

// turns has each way acquire, renew and release a free name, in turns, and another node of ours
// watch that name.
type turns struct {
	p                 sizes
	ways              []string
	all               map[string]candidate
	seen              func(context.Context) time.Time
	stop              func() // the node that watches
	acquired, renewed map[string][]time.Duration
	told              []time.Duration // ours alone: from the call that acquires until another node was told
}

func newTurns(ctx context.Context, b *bed, p sizes, of holding) *turns {
	t := &turns{p: p, ways: waysOn(of.Store), all: map[string]candidate{}, acquired: map[string][]time.Duration{}, renewed: map[string][]time.Duration{}}
	of.Name = "turns"
	for _, way := range t.ways {
		of.Way = way
		t.all[way] = b.candidate(ctx, of, "turns")
	}
	k, stop := of.keeper(ctx, "watcher")
	b.atEnd(stop)
	t.stop = stop
	t.seen = watching(ctx, k, p, of.Name)
	return t
}

// end closes what took part: a Keeper hears of every deletion, and here all of them, their server
// included, share the processors with what is compared next.
func (t *turns) end() {
	t.stop()
	for _, c := range t.all {
		c.close()
	}
}

// timed calls f, which may take no longer than patience.
func (t *turns) timed(ctx context.Context, what string, f func(context.Context)) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, t.p.patience)
	defer cancel()
	began := time.Now()
	err := scene.Try(func() { f(ctx) })
	took := time.Since(began)
	scene.Check(err, fmt.Sprintf("%s, after %v", what, took))
	return took
}

// turn has each way do it twice, in an order that is drawn, and the second time counts: the first
// brings its connection and its code back into the processor's caches, after those of the others.
func (t *turns) turn(ctx context.Context) {
	for _, i := range rand.Perm(len(t.ways)) {
		way, c := t.ways[i], t.all[t.ways[i]]
		var acquired, renewed, told time.Duration
		for range 2 {
			began := time.Now()
			acquired = t.timed(ctx, way+": acquire", func(ctx context.Context) {
				if !c.try(ctx) {
					scene.Check(errors.New("it is another's"))
				}
			})
			if way == holdfast {
				told = t.seen(ctx).Sub(began)
			}
			renewed = t.timed(ctx, way+": renew", c.renew)
			t.timed(ctx, way+": release", c.release)
		}
		t.acquired[way], t.renewed[way] = append(t.acquired[way], acquired), append(t.renewed[way], renewed)
		if way == holdfast {
			t.told = append(t.told, told)
		}
	}
}

func (t *turns) print(run *scene.Run) {
	for _, way := range t.ways {
		run.Spread("acquire, "+way, t.acquired[way])
		run.Spread("renew, "+way, t.renewed[way])
	}
	run.Spread("a watch is told", t.told)
}

// watching has a Keeper watch the name, and returns what waits until it was told once more that the
// name is held.
func watching(ctx context.Context, k *lease.Keeper, p sizes, name string) (seen func(context.Context) time.Time) {
	told := make(chan time.Time, 16)
	_, err := k.Watch(name, func(e store.Event) {
		if e.Kind == store.EventSynced || e.Kind == store.EventPut {
			select {
			case told <- time.Now():
			default:
			}
		}
	})
	scene.Check(err)
	seen = func(ctx context.Context) (at time.Time) {
		ctx, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		select {
		case at = <-told:
		case <-ctx.Done():
			scene.Check(ctx.Err(), fmt.Sprintf("the watch was told nothing within %v", p.patience))
		}
		return at
	}
	seen(ctx) // it is synced
	return seen
}

// won is when a waiter had its name.
type won struct {
	at  time.Time
	err error
}

// waits has a candidate wait for its name.
func waits(ctx context.Context, c candidate) <-chan won {
	done := make(chan won, 1)
	go func() { err := scene.Try(func() { c.await(ctx) }); done <- won{time.Now(), err} }()
	return done
}

// settle is for how long the waiter has been waiting when the holder lets go: longer than the 100 ms
// after which etcd serves a watch that began in the past.
const settle = 200 * time.Millisecond

// handOvers times from before a holder releases until the waiter has the name. The first rounds are
// not counted.
func handOvers(ctx context.Context, b *bed, p sizes, of holding) map[string][]time.Duration {
	ways := waysOn(of.Store)
	pairs, got := map[string][2]candidate{}, map[string][]time.Duration{}
	for _, way := range ways {
		of.Way, of.Name = way, "hand-over"
		var pair [2]candidate
		for i := range pair {
			pair[i] = b.candidate(ctx, of, fmt.Sprint("candidate-", i))
		}
		pairs[way] = pair
	}
	round := func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		waiting := map[string]<-chan won{}
		for _, way := range ways {
			pairs[way][0].await(ctx)
			waiting[way] = waits(ctx, pairs[way][1])
		}
		scene.Check(lab.Pause(ctx, settle))
		for _, i := range rand.Perm(len(ways)) {
			way := ways[i]
			if len(waiting[way]) > 0 {
				scene.Check(fmt.Errorf("hand-over by %s: the waiter did not wait: %w", way, (<-waiting[way]).err))
			}
			began := time.Now()
			pairs[way][0].release(ctx)
			w := <-waiting[way]
			scene.Check(w.err, "hand-over by "+way)
			pairs[way][1].release(ctx)
			got[way] = append(got[way], w.at.Sub(began))
		}
	}
	for i := range p.handOvers + 2 {
		if i == 2 {
			clear(got)
		}
		round()
	}
	return got
}
