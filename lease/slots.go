package lease

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

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
	case k == nil || k.store == nil:
		return nil, refused(fmt.Errorf("%w: the Keeper is the zero value, must come from NewKeeper", ErrInvalid))
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
				made.drop()
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
	if p == nil || p.k == nil {
		return fmt.Errorf("lease.Pool: %w: the zero value, must come from NewPool", ErrInvalid)
	}
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
				h.drop()
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
		p.slots[i].drop()
	}
	p.checkIdleLocked()
}

// drop is Close for a handle that was released, or never acquired: it asks nothing of the store.
func (h *Handle) drop() {
	h.k.mu.Lock()
	h.closed = true
	h.k.mu.Unlock()
	h.leave()
}
