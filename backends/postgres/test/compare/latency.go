//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// calls are how long calls of one kind took: the p50 and the p99 of each round, and the longest.
type calls struct {
	p50, p99 []time.Duration
	longest  time.Duration
}

// add adds a round.
func (c *calls) add(round []time.Duration) {
	slices.Sort(round)
	c.p50 = append(c.p50, round[len(round)/2])
	c.p99 = append(c.p99, round[len(round)*99/100])
	c.longest = max(c.longest, round[len(round)-1])
}

// latency is how long calls took, by kind and way. All ways take turns.
type latency struct {
	acquire, renew map[string]*calls
	watch          calls // ours alone: from the call that acquires until another node was told
}

func (l latency) longest() time.Duration {
	return max(l.acquire[holdfast].longest, l.renew[holdfast].longest, l.watch.longest)
}

// timed calls f, which may take no longer than patience.
func timed(ctx context.Context, patience time.Duration, f func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	return time.Since(began), err
}

// turns has each way acquire, renew and release a free name, in turns, and another node of ours
// watch that name.
type turns struct {
	p     plan
	all   map[string]candidate
	seen  func(context.Context) (time.Time, error)
	close func()
}

func newTurns(ctx context.Context, p plan, url string) (_ *turns, err error) {
	t := &turns{p: p, all: map[string]candidate{}}
	t.close = func() {
		for _, c := range t.all {
			c.close()
		}
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for _, way := range ways {
		c, err := newCandidate(ctx, way, url, "latency", "latency", p.ttl)
		if err != nil {
			return nil, err
		}
		t.all[way] = c
	}
	seen, stop, err := watching(ctx, p, url, "latency")
	if err != nil {
		return nil, err
	}
	hangUp := t.close
	t.seen, t.close = seen, func() { stop(); hangUp() }
	return t, nil
}

// round is how long the calls of some turns took.
type round struct {
	acquired, renewed map[string][]time.Duration
	told              []time.Duration
}

func newRound() *round {
	return &round{acquired: map[string][]time.Duration{}, renewed: map[string][]time.Duration{}}
}

// turn adds one turn to r.
func (t *turns) turn(ctx context.Context, r *round) error {
	for _, way := range ways {
		c, began := t.all[way], time.Now()
		d, err := timed(ctx, t.p.patience, func(ctx context.Context) error {
			ok, err := c.try(ctx)
			if err == nil && !ok {
				err = errors.New("it is another's")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: acquire, after %v: %w", way, d, err)
		}
		r.acquired[way] = append(r.acquired[way], d)
		if way == holdfast {
			at, err := t.seen(ctx)
			if err != nil {
				return err
			}
			r.told = append(r.told, at.Sub(began))
		}
		if d, err = timed(ctx, t.p.patience, c.renew); err != nil {
			return fmt.Errorf("%s: renew, after %v: %w", way, d, err)
		}
		r.renewed[way] = append(r.renewed[way], d)
		if d, err = timed(ctx, t.p.patience, c.release); err != nil {
			return fmt.Errorf("%s: release, after %v: %w", way, d, err)
		}
	}
	return nil
}

func newLatency() latency {
	l := latency{acquire: map[string]*calls{}, renew: map[string]*calls{}}
	for _, way := range ways {
		l.acquire[way], l.renew[way] = &calls{}, &calls{}
	}
	return l
}

func (l *latency) add(r *round) {
	for _, way := range ways {
		l.acquire[way].add(r.acquired[way])
		l.renew[way].add(r.renewed[way])
	}
	l.watch.add(r.told)
}

// measureLatency makes rounds of turns.
func measureLatency(ctx context.Context, p plan, url string) (latency, error) {
	l := newLatency()
	t, err := newTurns(ctx, p, url)
	if err != nil {
		return l, err
	}
	defer t.close()
	for n := range p.rounds + 1 { // the first is not counted: what is planned anew, and opened
		r := newRound()
		for range p.ops {
			if err := t.turn(ctx, r); err != nil {
				return l, err
			}
		}
		if n > 0 {
			l.add(r)
		}
	}
	return l, nil
}

// watching has another node watch the name, and returns what waits until it was told once more that
// the name is held.
func watching(ctx context.Context, p plan, url, name string) (seen func(context.Context) (time.Time, error), stop func(), err error) {
	n, err := newNode(ctx, url, postgres.DefaultSchema, "watcher", p.ttl, true)
	if err != nil {
		return nil, nil, err
	}
	puts, synced := make(chan time.Time, 16), make(chan struct{})
	_, err = n.keeper.Watch(name, func(e lease.Event) {
		switch e.Kind {
		case lease.EventSynced:
			close(synced)
		case lease.EventPut:
			select {
			case puts <- time.Now():
			default:
			}
		}
	})
	if err != nil {
		n.close()
		return nil, nil, err
	}
	seen = func(ctx context.Context) (time.Time, error) {
		select {
		case at := <-puts:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-time.After(p.patience):
			return time.Time{}, fmt.Errorf("the watch was not told of an acquisition within %v", p.patience)
		}
	}
	select {
	case <-synced:
		return seen, n.close, nil
	case <-time.After(p.patience):
		n.close()
		return nil, nil, fmt.Errorf("a watch did not begin within %v", p.patience)
	}
}
