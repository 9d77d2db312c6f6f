//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// fault is one that a bed meets.
type fault struct {
	name    string // of its test
	title   string // in the table
	needs   []string
	options []postgrestest.Option
	// prepare adds to the server what the fault needs, before there are nodes.
	prepare func(ctx context.Context, b *bed) error
	// inflict returns once the fault is over, and sets b.gone and b.returning.
	inflict func(ctx context.Context, b *bed) error
	// keeps: if the fault took less than half a TTL, no holder loses what it holds.
	keeps bool
	// loses: service is gone for more than a TTL, so that every holder loses what it holds.
	loses bool
	// clock: the fault is one of the server's clock, so that two may believe.
	clock bool
	// twice: there are two stores, so that two do believe, and for how long is measured.
	twice bool
	// check asserts more.
	check func(b *bed, f finding) error
}

// finding is what a bed showed of a fault.
type finding struct {
	verdict
	began     time.Duration // the fault
	out       time.Duration // how long service was gone; 0: it was not
	took      time.Duration // the fault
	held      int           // terms of long names that were alive when the fault began
	lost      int           // of these
	reasons   map[string]int
	believed  time.Duration // how long after the fault began the last of the lost was believed in
	heldAgain time.Duration // after the fault's end, until every name was believed to be held
	acquired  time.Duration // after the fault's end, until something was acquired
	handOvers int           // terms that began while the fault lasted
	err       error         // of check
}

// most is how long recovery may take, on a machine that is busy.
func most(ttl time.Duration) time.Duration { return ttl + 20*time.Second }

// play runs a fault on a bed of its own.
func play(ctx context.Context, ttl time.Duration, f fault) (r finding, err error) {
	b, err := newBed(ctx, ttl, f.options...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if f.prepare != nil {
		if err := f.prepare(ctx, b); err != nil {
			return r, fmt.Errorf("prepare: %w", err)
		}
	}
	if err := b.populate(ctx, 3); err != nil {
		return r, err
	}
	if err := b.contend(ctx); err != nil {
		return r, err
	}
	if _, err := b.held(ctx, now(), most(ttl)); err != nil {
		return r, fmt.Errorf("before the fault: %w", err)
	}
	if err := wait(ctx, ttl/2); err != nil {
		return r, err
	}
	b.began = now()
	if err := f.inflict(ctx, b); err != nil {
		return r, fmt.Errorf("inflict: %w", err)
	}
	over := now()
	heldAgain, err := b.held(ctx, over, most(ttl))
	if err != nil {
		return r, fmt.Errorf("after the fault: %w", err)
	}
	acquired, err := b.won(ctx, over, most(ttl))
	if err != nil {
		return r, fmt.Errorf("after the fault: %w", err)
	}
	if err := wait(ctx, ttl/2); err != nil { // what is noticed late
		return r, err
	}
	b.stop()
	if err := b.silence(); err != nil {
		return r, err
	}
	r = b.find(b.began, over)
	r.heldAgain, r.acquired = heldAgain, acquired
	if f.check != nil {
		r.err = f.check(b, r)
	}
	return r, nil
}

// find looks at the journal.
func (b *bed) find(began, over time.Duration) finding {
	list := b.journal.all()
	r := finding{verdict: judge(list), began: began, took: over - began, reasons: map[string]int{}}
	if b.gone != 0 {
		r.out = over - b.gone
	}
	for _, e := range list {
		if e.first > began && e.first < over {
			r.handOvers++
		}
		if b.names[e.name] != 0 || e.first > began || e.last < began {
			continue
		}
		r.held++
		if e.reason != nil {
			r.lost++
			r.reasons[strings.TrimPrefix(e.reason.Error(), "lease ")]++
			r.believed = max(r.believed, e.last-began)
		}
	}
	return r
}

// silence is an error if anybody believed between when all must have stopped and when service
// began to return.
func (b *bed) silence() error {
	trust := b.ttl - max(b.ttl/10, 100*time.Millisecond)
	if b.gone == 0 || b.returning < b.gone+trust {
		return nil
	}
	for _, e := range b.journal.all() {
		if e.last > b.gone+trust && e.first < b.returning {
			return fmt.Errorf("believed %v after the service had gone, and no renewal can have succeeded: %+v", e.last-b.gone, e)
		}
	}
	return nil
}

func round(d time.Duration) time.Duration {
	if d >= 100*time.Millisecond {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// beliefs says what holders believed.
func (r finding) beliefs() string {
	s := fmt.Sprintf("all %d kept", r.held)
	if r.lost > 0 {
		var why []string
		for reason, n := range r.reasons {
			why = append(why, fmt.Sprintf("%d %s", n, reason))
		}
		sort.Strings(why)
		s = fmt.Sprintf("%d of %d lost (%s), the last %v after it began", r.lost, r.held, strings.Join(why, ", "), round(r.believed))
	}
	if r.doubles > 0 {
		s += fmt.Sprintf("; %d terms began while another believed, for %v at most", r.doubles, round(r.longest))
	}
	if r.backward > 0 {
		s += fmt.Sprintf("; %d tokens went back, by %v at most", r.backward, round(time.Duration(r.furthest)*time.Microsecond))
	}
	return s
}

// recovery says how long it took.
func (r finding) recovery() string {
	s := "no pause"
	if r.out > 0 {
		s = fmt.Sprintf("gone for %v", round(r.out))
	}
	return fmt.Sprintf("%s; all held %v, the first acquired %v after", s, round(r.heldAgain), round(r.acquired))
}
