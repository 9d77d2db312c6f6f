package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
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
	names []string // of the slots

	turn   chan struct{} // held by the one call of Run that looks for a slot, or waits for one
	parked atomic.Bool   // it has found none
	freed  chan int      // has room for one: a slot that was given back here

	mu    sync.Mutex
	open  context.Context // ends with Close, under mu
	close context.CancelFunc
	busy  []bool
	work  sync.WaitGroup // the busy ones
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
	p := &Pool{k: k, name: name, turn: make(chan struct{}, 1), busy: make([]bool, n), freed: make(chan int, 1)}
	p.open, p.close = context.WithCancel(context.Background())
	for i := range n {
		h, err := k.Lease(name+"/"+strconv.Itoa(i), opts...)
		if err != nil {
			for _, made := range p.slots {
				drop(made)
			}
			return nil, refused(err)
		}
		p.slots, p.names = append(p.slots, h), append(p.names, h.name)
	}
	return p, nil
}

// Run waits until a slot is free, runs f with it, and gives the slot back when f has returned: all
// as lease.Run does it, which see for f's context, losses, errors and panics. slot counts from 0; no
// other call has it while the term lives. An f that runs something in a slot of its own Pool may
// wait for itself. Errors besides: ErrClosed.
func (p *Pool) Run(ctx context.Context, f func(ctx context.Context, slot int, t Term) error) error {
	return p.run(ctx, "lease.Pool.Run", true, f)
}

func (p *Pool) check(ctx context.Context) error {
	return input.Call(ctx, p.k != nil, "lease.NewPool", ErrInvalid)
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
	defer p.wake(i) // once it is free
	defer p.unuse(i)
	o := runUnder(ctx, p.slots[i], func(ctx context.Context, t Term) error { return f(ctx, i, t) })
	if waits {
		return o.error()
	}
	return o.tried()
}

// Holders asks the store who has slots: their records, in the order of the slots, which
// Record.Name ends with. What is no record has nothing but its Name. They are asked for in a few
// requests, each bounded by AttemptTimeout; errors are those of Keeper.Get.
func (p *Pool) Holders(ctx context.Context) ([]Record, error) {
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	found, err := p.k.get(ctx, p.names...)
	if err != nil {
		return nil, p.k.errorf(p.name, err)
	}
	var held []Record
	for _, name := range p.names {
		if r, ok := found[name]; ok {
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
	if p.open.Err() == nil {
		p.close()
		for i, h := range p.slots {
			if !p.busy[i] {
				drop(h)
			}
		}
	}
	p.mu.Unlock()
	err := boundary.Wait(ctx, &p.work)
	n := len(p.slots) - len(p.unused())
	if err == nil || n == 0 {
		return nil
	}
	return fmt.Errorf("pool %q: %d slots are in use: %w", p.name, n, err)
}

// wake tells the call that waits, if one does, that a slot was given back here.
func (p *Pool) wake(i int) {
	select {
	case p.freed <- i:
	default:
	}
}

// unuse gives a slot back that was in use.
func (p *Pool) unuse(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[i] = false
	if p.open.Err() != nil {
		drop(p.slots[i])
	}
	p.work.Done()
}

// drop is Close for a handle that was released, or never acquired: it asks nothing of the store.
func drop(h *Handle) {
	h.k.mu.Lock()
	h.closed = true
	h.k.mu.Unlock()
	h.leave()
}

// What follows finds a free slot of a Pool. One call of Run of a process does at a time, the others wait
// for their turn.

// take finds a slot: if waits, in its turn, and however long that takes (await).
func (p *Pool) take(ctx context.Context, waits bool) (slot int, err error) {
	switch {
	case waits:
	case p.open.Err() != nil:
		return 0, ErrClosed
	case p.parked.Load():
		return 0, fmt.Errorf("others wait for one: %w", ErrHeld)
	default:
		won, err := p.try(ctx, &slot, -1)
		if !won {
			err = cmp.Or(err, ErrHeld)
			p.wake(slot) // one that waits passed over what was tried here
		}
		return slot, err
	}
	within, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(p.open, end)()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
		defer p.parked.Store(false)
		free := -1
		err = await(within, sought{
			try: func(ctx context.Context) (won bool, err error) {
				if won, err = p.try(ctx, &slot, free); !won {
					p.parked.Store(true)
				}
				free = -1
				return won, err
			},
			wait:   func(ctx context.Context) (err error) { free, err = p.park(ctx); return err },
			handle: p.slots[0], // they hang on one
			failed: func(err error) {
				p.k.reach.aside("no slot can be acquired, trying on", zap.String("pool", p.name), zap.Error(err))
			},
		})
	case <-within.Done():
		err = within.Err()
	}
	if err != nil && p.open.Err() != nil && ctx.Err() == nil {
		err = ErrClosed
	}
	return slot, err
}

// try makes an attempt for the slot that is believed to be free, or, if it is -1, for each of which
// that is found, in random order, until one is won. false: each was held by another at some
// moment, or is in use here.
func (p *Pool) try(ctx context.Context, slot *int, free int) (won bool, err error) {
	open := []int{free}
	if free < 0 {
		if open, err = p.looksFree(ctx); err != nil {
			return false, err
		}
	}
	for _, *slot = range open {
		won, err := p.acquire(ctx, *slot)
		if won || err != nil && !errors.Is(err, ErrBadRecord) {
			return won, err
		}
	}
	return false, nil
}

// looksFree asks the store which slots are free, and returns them in random order. One that is this
// Keeper's, and not in use, is what a release has left.
func (p *Pool) looksFree(ctx context.Context) ([]int, error) {
	found, err := p.k.get(ctx, p.names...)
	open := slices.DeleteFunc(p.unused(), func(i int) bool {
		r, held := found[p.names[i]]
		return held && r.Owner.Incarnation != p.k.owner.Incarnation
	})
	mrand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	return open, err
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

// acquire asks for one slot, which is in use here from before that on; false if it was.
func (p *Pool) acquire(ctx context.Context, i int) (won bool, err error) {
	p.mu.Lock()
	over, busy := p.open.Err() != nil, p.busy[i]
	if !over && !busy {
		p.busy[i] = true
		p.work.Add(1)
	}
	p.mu.Unlock()
	switch {
	case over:
		return false, ErrClosed
	case busy:
		return false, nil
	}
	if won, err = p.slots[i].Acquire(ctx); !won {
		p.unuse(i)
	}
	return won, err
}

// park waits until a slot is believed to be free, here or in the store, and returns it.
func (p *Pool) park(ctx context.Context) (slot int, err error) {
	unused := p.unused()
	free, gone := make(chan int, len(unused)), make(chan struct{}, len(unused))
	for _, i := range unused {
		w := &waiter{func(is bool) {
			if is {
				free <- i
			} else {
				gone <- struct{}{}
			}
		}}
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
	case <-gone:
		return 0, ErrClosed
	case <-p.k.ctx.Done(): // where all are in use here, or a herd is spread
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
