package lease

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/holdfast-go/holdfast/internal/input"
)

// This file makes the calls of Run for one lease take turns: each then has a term
// of its own, and none releases under another's work.

// turns are the leases that Run is called for now.
var turns = struct {
	sync.Mutex
	of map[Lease]*turn
}{of: map[Lease]*turn{}}

// turn is held by one call of Run at a time; the others wait to send.
type turn struct {
	taken chan struct{}
	calls int // that hold it or wait for it; guarded by turns
}

// takeTurn begins the turn of a call of Run that is about l, and returns what ends it. If another call
// is, it waits for that or, unless it waits, returns nil. what is called is for errors.
func takeTurn(ctx context.Context, what string, l Lease, waits bool) (end func(), err error) {
	t, leave, err := joinTurn(what, l)
	if err != nil {
		return nil, err
	}
	end = func() { <-t.taken; leave() }
	select {
	case t.taken <- struct{}{}:
		return end, nil
	default:
	}
	if waits {
		select {
		case t.taken <- struct{}{}:
			return end, nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	leave()
	return nil, err
}

// joinTurn returns the turn of l, which stays until leave is called.
func joinTurn(what string, l Lease) (t *turn, leave func(), err error) {
	l, ok := innermost(l)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %w: a %T wraps itself, or is wrapped more than %d times (Unwrap)", what, ErrInvalid, l, mostWrappers)
	}
	if !reflect.ValueOf(l).Comparable() {
		return nil, nil, fmt.Errorf("%s: %w: a %T can't be told from another, must be a pointer or have Unwrap", what, ErrInvalid, l)
	}
	turns.Lock()
	t = turns.of[l]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		turns.of[l] = t
	}
	t.calls++
	turns.Unlock()
	return t, func() {
		turns.Lock()
		defer turns.Unlock()
		if t.calls--; t.calls == 0 {
			delete(turns.of, l)
		}
	}, nil
}

// innermost returns what l wraps: the same for all wrappers of one lease. ok is false
// if there is no end of wrappers.
func innermost(l Lease) (inner Lease, ok bool) {
	for range mostWrappers {
		if h, ok := l.(interface{ handle() *Handle }); ok {
			return h.handle(), true // also from what embeds one
		}
		w, ok := l.(interface{ Unwrap() Lease })
		if !ok {
			return l, true
		}
		next := w.Unwrap()
		if input.Nil(next) {
			return l, true
		}
		l = next
	}
	return l, false
}

// handle is the handle itself, for a type that embeds it.
func (h *Handle) handle() *Handle { return h }
