package lease

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// MaxSlots is the most slots of a Pool.
const MaxSlots = 1000

// Pool is a semaphore of a cluster: n slots, each a lease of its own, called name/0 to name/n-1. At
// most n calls of Run work at a time, on all nodes that made a Pool of the same name and n; of
// nodes that disagree, as many as the largest n. One node may have several slots, or all.
//
// Fairness: the calls of one Pool get slots in the order in which they began to wait. Among nodes
// there is no order: each takes a free slot at random, and who asks first has it.
//
// Make one with NewPool, and Close it. Safe for concurrent use.
type Pool struct {
	k     *Keeper
	name  string
	slots []*Handle

	turn chan struct{} // held by the one call that looks for a slot, or waits for one

	mu     sync.Mutex
	busy   []bool
	closed bool
	left   chan struct{} // closed with Close
	idle   chan struct{} // closed when, after Close, none is busy
	parked chan struct{} // closed while the one that has the turn waits
	freed  chan int      // has room for one: a slot that was given back here
}

// NewPool makes a Pool of n slots. The options are for the lease of each. Nothing is asked of the
// store. Errors: ErrInvalid (the name, n, which is 1 to MaxSlots, or an option), ErrNameInUse while
// there is another Pool of the name on this Keeper, or a lease of one of its names; ErrClosed.
func NewPool(k *Keeper, name string, n int, opts ...Option) (*Pool, error) {
	refused := func(err error) error { return fmt.Errorf("lease.NewPool %.64q: %w", name, err) }
	switch {
	case k == nil:
		return nil, refused(fmt.Errorf("%w: the Keeper is nil, must come from NewKeeper", ErrInvalid))
	case n < 1 || n > MaxSlots:
		return nil, refused(fmt.Errorf("%w: %d slots, must be at least 1 and at most %d", ErrInvalid, n, MaxSlots))
	}
	if err := store.ValidateName(name); err != nil {
		return nil, refused(err)
	}
	if last := slotName(name, n-1); len(last) > store.MaxName {
		return nil, refused(fmt.Errorf("%w: with the number of a slot it has %d bytes, at most %d", ErrInvalid, len(last), store.MaxName))
	}
	p := &Pool{
		k: k, name: name, turn: make(chan struct{}, 1), busy: make([]bool, n), left: make(chan struct{}),
		idle: make(chan struct{}), parked: make(chan struct{}), freed: make(chan int, 1),
	}
	for i := range n {
		h, err := k.Lease(slotName(name, i), opts...)
		if err != nil {
			for _, made := range p.slots {
				drop(made)
			}
			return nil, refused(err)
		}
		p.slots = append(p.slots, h)
	}
	return p, nil
}

func slotName(name string, i int) string { return name + "/" + strconv.Itoa(i) }

// Run waits until a slot is free, runs f with it, and gives the slot back when f has returned: all
// as lease.Run does it, which see for f's context, losses, errors and panics. slot counts from 0; no
// other call has it while the term lives. An f that runs something in a slot of its own Pool may
// wait for itself. Errors besides: ErrClosed.
func (p *Pool) Run(ctx context.Context, f func(ctx context.Context, slot int, t Term) error) error {
	return p.run(ctx, "lease.Pool.Run", true, f)
}

// TryRun is Run for who does not wait. If each slot was found to be held, at some moment during the
// call, or if others wait here, the error is ErrHeld; Holders tells by whom. As that of TryRun it says
// that f did not run.
func (p *Pool) TryRun(ctx context.Context, f func(ctx context.Context, slot int, t Term) error) error {
	return p.run(ctx, "lease.Pool.TryRun", false, f)
}

func (p *Pool) run(ctx context.Context, what string, waits bool, f func(ctx context.Context, slot int, t Term) error) error {
	if err := p.check(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if f == nil {
		return fmt.Errorf("%s: %w: f must not be nil", what, ErrInvalid)
	}
	i, err := p.take(ctx, waits)
	if err != nil {
		return fmt.Errorf("pool %q of %d slots: %w", p.name, len(p.slots), err)
	}
	defer p.give(i)
	o := runUnder(ctx, p.slots[i], func(ctx context.Context, t Term) error { return f(ctx, i, t) })
	if waits {
		return o.error()
	}
	return o.tried()
}

func (p *Pool) check(ctx context.Context) error {
	return input.Context(ctx, ErrInvalid)
}

// Holders asks the store who has slots: their records, in the order of the slots, which
// Record.Name ends with. What is no record has nothing but its Name. They are asked for in a few
// requests, each bounded by AttemptTimeout; errors are those of Keeper.Get.
func (p *Pool) Holders(ctx context.Context) ([]Record, error) {
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	all := make([]int, len(p.slots))
	for i := range all {
		all[i] = i
	}
	found, err := p.look(ctx, all)
	if err != nil {
		return nil, p.k.errorf(p.name, err)
	}
	var held []Record
	for _, h := range p.slots {
		if r, ok := found[h.name]; ok {
			held = append(held, r)
		}
	}
	return held, nil
}

// Close ends the calls that wait, and later ones, with ErrClosed, waits for those that work to
// return, and frees the names on the Keeper. When ctx is done before, the error says how many work
// yet; each of their slots is free once it is given back.
func (p *Pool) Close(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.left)
		for i, h := range p.slots {
			if !p.busy[i] {
				drop(h)
			}
		}
		p.checkIdleLocked()
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
	}
	n := len(p.slots) - len(p.unused())
	if n == 0 {
		return nil
	}
	return fmt.Errorf("pool %q: %d slots are in use: %w", p.name, n, ctx.Err())
}

func (p *Pool) checkIdleLocked() {
	if p.closed && !slices.Contains(p.busy, true) {
		select {
		case <-p.idle:
		default:
			close(p.idle)
		}
	}
}

// give gives a slot back that was in use, and wakes the one that waits.
func (p *Pool) give(i int) {
	p.unuse(i)
	select {
	case p.freed <- i:
	default:
	}
}

func (p *Pool) unuse(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[i] = false
	if p.closed {
		drop(p.slots[i])
	}
	p.checkIdleLocked()
}

// drop is Close for a handle that was released, or never acquired: it asks nothing of the store.
func drop(h *Handle) {
	h.k.mu.Lock()
	h.closed = true
	h.k.mu.Unlock()
	h.leave()
}

// What follows finds a free slot of a Pool. One call of a process does at a time, the others wait for
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
				p.k.reach.aside("no slot can be acquired, trying on", zap.String("pool", p.name), zap.Error(err))
			}
			var begins <-chan struct{}
			if last = err; errors.Is(err, ErrParentLost) {
				begins = p.k.parentBegins(&p.slots[0].entry) // they hang on one
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
	names := make([]string, len(slots))
	for i, s := range slots {
		names[i] = p.slots[s].name
	}
	return p.k.get(ctx, names...)
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
		if !p.slots[i].listen(w) {
			return 0, ErrClosed
		}
		defer p.k.waits.remove(&p.slots[i].entry, w)
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
