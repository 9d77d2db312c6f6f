package lease

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
)

// This file finds a free slot of a Pool. One call of a process does at a time, the others wait for
// their turn.
//
//	turn ─▶ try: ask which are free, acquire one ──▶ won
//	         ▲    │ none                │ it failed
//	         │    ▼                     ▼
//	         │  park: until one       rest: for a pause
//	         │  may be free           that grows
//	         └────┴─────────────────────┘

// take waits for the turn, and then for a slot.
func (p *Pool) take(ctx context.Context, waits bool) (slot int, err error) {
	p.mu.Lock()
	parked := p.parked
	p.mu.Unlock()
	if waits {
		parked = nil
	}
	select {
	case <-p.left:
		return 0, ErrClosed
	case p.turn <- struct{}{}:
	case <-parked:
		return 0, fmt.Errorf("others wait for one: %w", ErrHeld)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	pauses := backoff{least: time.Second, most: 10 * time.Second}
	var last error // of the attempts, if they fail now
	for free := -1; ; {
		i, err := p.try(ctx, free)
		free = -1
		switch {
		case err == nil:
			return i, nil
		case !waits, errors.Is(err, ErrClosed), errors.Is(err, ErrInvalid):
			return 0, err
		case ctx.Err() != nil:
			if last != nil {
				return 0, fmt.Errorf("%w; none could be acquired: %w", ctx.Err(), last)
			}
			return 0, ctx.Err()
		}
		end := p.waiting()
		if errors.Is(err, ErrHeld) {
			last = nil
			pauses.reset()
			free, err = p.park(ctx)
		} else {
			if last == nil && !errors.Is(err, ErrParentLost) { // that is not out of order
				p.k.aside("no slot can be acquired, trying on", zap.String("pool", p.name), zap.Error(err))
			}
			var begins <-chan struct{}
			if last = err; errors.Is(err, ErrParentLost) {
				begins = p.slots[0].parentBegins() // they hang on one
			}
			err = pauses.rest(ctx, begins, p.left, p.k.ctx.Done())
		}
		end()
		if errors.Is(err, ErrClosed) {
			return 0, err
		}
	}
}

// try makes an attempt for the slot that is believed to be free, or, if it is -1, for each of which
// that is found, in random order, until one is won. ErrHeld: each was held by another at some
// moment, or is in use here.
func (p *Pool) try(ctx context.Context, free int) (slot int, err error) {
	open := []int{free}
	if free < 0 {
		if open, err = p.open(ctx); err != nil {
			return 0, err
		}
	}
	for _, i := range open {
		won, err := p.acquire(ctx, i)
		switch {
		case won:
			return i, nil
		case err != nil && !errors.Is(err, ErrBadRecord):
			return 0, err
		}
	}
	return 0, ErrHeld
}

// open asks the store which slots are free, and returns them in random order. One that is this
// Keeper's, and not in use, is what a release has left.
func (p *Pool) open(ctx context.Context) (open []int, err error) {
	open = p.unused()
	found, err := p.look(ctx, open)
	if err != nil {
		return nil, err
	}
	open = slices.DeleteFunc(open, func(i int) bool {
		r, held := found[p.slots[i].name]
		return held && r.Owner.Incarnation != p.k.owner.Incarnation
	})
	mrand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	return open, nil
}

// unused are the slots that are not in use here.
func (p *Pool) unused() (slots []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, busy := range p.busy {
		if !busy {
			slots = append(slots, i)
		}
	}
	return slots
}

// look reads the records of slots, by their names.
func (p *Pool) look(ctx context.Context, slots []int) (map[string]Record, error) {
	found := map[string]Record{}
	for part := range slices.Chunk(slots, p.k.batch()) {
		names := make([]string, len(part))
		for i, s := range part {
			names[i] = p.slots[s].name
		}
		recs, err := ask(ctx, p.k, func(ctx context.Context) ([]Record, error) { return p.k.store.Get(ctx, names...) })
		if err != nil {
			return nil, err
		}
		for _, r := range recs {
			found[r.Name] = r
		}
	}
	return found, nil
}

// acquire asks for one slot, which is in use here from before that on; false if it was.
func (p *Pool) acquire(ctx context.Context, i int) (won bool, err error) {
	p.mu.Lock()
	if p.closed || p.busy[i] {
		if p.closed {
			err = ErrClosed
		}
		p.mu.Unlock()
		return false, err
	}
	p.busy[i] = true
	p.mu.Unlock()
	if won, err = p.slots[i].Acquire(ctx); !won {
		p.unuse(i)
	}
	return won, err
}

// waiting: the one that has the turn waits, until end is called.
func (p *Pool) waiting() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.parked)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.parked = make(chan struct{})
	}
}

// park waits until a slot is believed to be free, here or in the store, and returns it.
func (p *Pool) park(ctx context.Context) (slot int, err error) {
	free, gone := make(chan int, 1), make(chan struct{})
	for n, i := range p.unused() {
		w := &waiter{ours: true, gone: make(chan struct{}), f: func() {
			select {
			case free <- i:
			default: // the next look finds it
			}
		}}
		if n == 0 {
			w.gone = gone // a Keeper closes all together
		}
		if !p.slots[i].await(w) {
			return 0, ErrClosed
		}
		defer p.slots[i].unwait(w)
	}
	select {
	case i := <-free:
		return i, nil
	case i := <-p.freed:
		return i, nil
	case <-p.left:
	case <-gone:
	case <-p.k.ctx.Done():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return 0, ErrClosed
}
