package lease

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// This file tells who holds one name.
//
//	follower ─▶ holding: what stands, once it is known ─▶ the latest alone waits ─▶ a goroutine of its own ─▶ f
//	  (a watch, or looks PollMin apart)

// HolderState says what is known of a name's holder.
type HolderState uint8

const (
	// HolderUnknown: the store has not answered for a TTL of the Keeper's, or its history went
	// back (ErrSetback). What was told before may be past.
	HolderUnknown HolderState = iota
	// NameFree: the name is free.
	NameFree
	// NameHeld: the name is held.
	NameHeld
)

// Holding is what FollowHolder tells.
type Holding struct {
	State HolderState
	// Record is the holder's, of NameHeld alone. If what stands is no record (ErrBadRecord) it has
	// nothing but its Name.
	Record Record
}

// is reports whether both tell the same.
func (h Holding) is(other Holding) bool {
	return h.State == other.State && markOf(h.Record) == markOf(other.Record)
}

// FollowHolder calls f with who holds name: as soon as that is known, and then with each change, until
// stop or the end of the Keeper. A change is another ownership: the same owner under a new token, too.
// Calls are in the order of the changes. A change that was undone before f was called, as f is slow or
// the store can't watch, is left out; what stands in the end never is. f gets HolderUnknown when the
// store has not answered for a TTL (a silent watch is found within four), and what stands when it
// answers again.
//
// It follows the watch of the store, or, if that can't, asks for the name, PollMin apart with
// jitter. What f gets is past when it gets it: it is for people and routes. CheckAlive and the token
// say who may act.
//
// f is called from a goroutine of its own, one call at a time; it may block, and then no further call
// is made. A panic of it is logged. stop may be called from f; it does not wait for a call that has
// begun, and none begins after it. Errors: ErrInvalid (the name, or no f), ErrClosed.
func (k *Keeper) FollowHolder(name string, f func(Holding)) (stop func(), err error) {
	if err := store.ValidateName(name); err != nil {
		return nil, err
	}
	switch {
	case k.store == nil:
		return nil, errUnmade
	case f == nil:
		return nil, k.errorf(name, fmt.Errorf("FollowHolder: f: %w: nil", ErrInvalid))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return nil, k.errorf(name, ErrClosed)
	}
	ctx, cancel := context.WithCancel(k.ctx)
	h := &holderFeed{}
	first := true
	unfollow := h.feed.Follow(func(previous, latest Holding, _ int) {
		if ctx.Err() != nil || !first && previous.is(latest) { // what changed in between was undone
			return
		}
		first = false
		k.guard("FollowHolder", name, func() { f(latest) })
	})
	k.followLocked(ctx, cancel, &follower{
		k: k, prefix: name, name: name, emit: h.hear, caughtUp: h.known, lapsed: h.unknown,
	})
	return func() { unfollow(); cancel() }, nil
}

// holderFeed is one FollowHolder: the follower's goroutine alone uses it, but for feed.
type holderFeed struct {
	stands  Holding // by what was heard
	isKnown bool    // that is all there is

	latest Holding // that was passed on
	any    bool    // there is one
	feed   feed.Latest[Holding]
}

// hear takes up an event of the name.
func (h *holderFeed) hear(ev store.Event) {
	switch ev.Kind {
	case store.EventPut:
		h.stands = Holding{NameHeld, ev.Record}
	case store.EventBad:
		h.stands = Holding{NameHeld, Record{Name: ev.Record.Name}}
	case store.EventDelete:
		if ev.Revision < h.stands.Record.Token {
			return // of what went before
		}
		h.stands = Holding{State: NameFree}
	case store.EventReset:
		h.unknown()
		h.stands = Holding{State: NameFree}
		return
	default:
		return
	}
	if h.isKnown {
		h.tell(h.stands)
	}
}

// known: what stands was told. Where nothing was, the name is free.
func (h *holderFeed) known() {
	h.isKnown = true
	if h.stands.State == HolderUnknown {
		h.stands.State = NameFree
	}
	h.tell(h.stands)
}

// unknown: what stands may be another by now.
func (h *holderFeed) unknown() {
	h.isKnown = false
	h.tell(Holding{})
}

// tell passes on what is the latest, unless it is as before.
func (h *holderFeed) tell(latest Holding) {
	if h.any && h.latest.is(latest) {
		return
	}
	h.latest, h.any = latest, true
	h.feed.Set(latest)
}
