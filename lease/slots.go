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
	freed  chan struct{} // has room for one: a slot of this Pool was given up
}

// NewPool makes a Pool of n slots. The options are for the lease of each. Nothing is asked of the
// store. Errors: ErrInvalid (the name, n, which is 1 to MaxSlots, or an option), ErrNameInUse while
// there is another Pool of the name on this Keeper, or a lease of one of its names; ErrClosed.
func NewPool(k *Keeper, name string, n int, opts ...Option) (*Pool, error) {
	refused := func(err error) error { return fmt.Errorf("lease.NewPool %.64q: %w", name, err) }
	switch {
	case k == nil || k.store == nil:
		return nil, refused(fmt.Errorf("%w: the Keeper was made by nobody, must come from NewKeeper", ErrInvalid))
	case n < 1 || n > MaxSlots:
		return nil, refused(fmt.Errorf("%w: %d slots, must be at least 1 and at most %d", ErrInvalid, n, MaxSlots))
	}
	if err := ValidateName(name); err != nil {
		return nil, refused(err)
	}
	if last := slotName(name, n-1); len(last) > MaxName {
		return nil, refused(fmt.Errorf("%w: with the number of a slot it has %d bytes, at most %d", ErrInvalid, len(last), MaxName))
	}
	p := &Pool{
		k: k, name: name, turn: make(chan struct{}, 1), busy: make([]bool, n), left: make(chan struct{}),
		idle: make(chan struct{}), parked: make(chan struct{}), freed: make(chan struct{}, 1),
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
// call, or if others wait here, the error is ErrHeld; Holders tells by whom.
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
	return runUnder(ctx, p.slots[i], func(ctx context.Context, t Term) error { return f(ctx, i, t) }).error()
}

func (p *Pool) check(ctx context.Context) error {
	if p == nil || p.k == nil {
		return fmt.Errorf("lease.Pool: %w: made by nobody, must come from NewPool", ErrInvalid)
	}
	return ValidateContext(ctx)
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
// yet; each slot of theirs is freed as it is given back.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, busy := range p.busy {
		if busy {
			n++
		}
	}
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
	for {
		i, err := p.try(ctx)
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
			err = p.park(ctx)
		} else {
			if last == nil {
				p.k.aside("no slot can be acquired, trying on", zap.String("pool", p.name), zap.Error(err))
			}
			last = err
			err = p.rest(ctx, pauses.grow())
		}
		end()
		if errors.Is(err, ErrClosed) {
			return 0, err
		}
	}
}

// try makes one attempt for each slot that is believed to be free, in random order, until one is
// won. ErrHeld: each was held by another at some moment, or is in use here.
func (p *Pool) try(ctx context.Context) (slot int, err error) {
	var open []int
	p.mu.Lock()
	for i, busy := range p.busy {
		if !busy {
			open = append(open, i)
		}
	}
	p.mu.Unlock()
	found, err := p.look(ctx, open)
	if err != nil {
		return 0, err
	}
	mrand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, i := range open {
		h := p.slots[i]
		if r, held := found[h.name]; held && r.Owner.Incarnation != p.k.owner.Incarnation {
			continue
		}
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

// acquire asks for one slot, which is in use here from before that on.
func (p *Pool) acquire(ctx context.Context, i int) (won bool, err error) {
	p.mu.Lock()
	closed := p.closed
	p.busy[i] = !closed
	p.mu.Unlock()
	if closed {
		return false, ErrClosed
	}
	defer func() {
		if !won { // also if the store ended the goroutine
			p.unuse(i)
		}
	}()
	return p.slots[i].Acquire(ctx)
}

// give gives a slot back that was in use, and wakes the one that waits.
func (p *Pool) give(i int) {
	p.unuse(i)
	select {
	case p.freed <- struct{}{}:
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

// park waits until a slot is believed to be free, here or in the store.
func (p *Pool) park(ctx context.Context) error {
	p.mu.Lock()
	open := make([]*Handle, 0, len(p.slots))
	for i, h := range p.slots {
		if !p.busy[i] {
			open = append(open, h)
		}
	}
	p.mu.Unlock()
	free, gone := make(chan struct{}, 1), make(chan struct{})
	for i, h := range open {
		w := &waiter{ours: true, gone: make(chan struct{}), f: func() {
			select {
			case free <- struct{}{}:
			default:
			}
		}}
		if i == 0 {
			w.gone = gone // a Keeper closes all together
		}
		if !h.await(w) {
			return ErrClosed
		}
		defer h.unwait(w)
	}
	select {
	case <-free:
		return nil
	case <-p.freed:
		return nil
	case <-p.left:
	case <-gone:
	case <-p.k.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return ErrClosed
}

// rest waits after a failure.
func (p *Pool) rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.left:
	case <-p.k.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return ErrClosed
}
