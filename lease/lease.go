// Package lease makes sure that a piece of work runs in one place at a time, whatever fails. The right
// to do it is a lease: one name in one store, with an owner, a deadline and a fencing token.
//
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//	job, err := keeper.Lease("job/report")
//	err = lease.Run(ctx, job, func(ctx context.Context, t lease.Term) error {
//		return report(ctx, t.Token()) // ctx is done when the lease is lost
//	})
//
// At any moment at most one holder of a name sees CheckAlive true, while the rates of clocks differ by
// less than the margin allows. Tokens of a name strictly increase with every change of owner. A term
// that has ended never lives again. OnLost is called once for each loss. Every call is bounded.
//
// Records belong to sessions, and sessions are renewed: one request for up to a thousand names. A
// holder trusts by its own clocks, counted from before the request was sent:
//
//	send renewal ─────────── reply ────────────────────── deadline ─── margin ─── TTL ends in the store
//	|<---------------- CheckAlive is true ------------------>|<-- no one acts -->|  another may acquire
//
// A handle (Keeper.Lease) goes through terms. In ended the record may still stand, and work may still
// run, until its owner calls Release or Acquire:
//
//	            won (new token)                 lost: OnLost
//	┌──────┐ ───────────────────▶ ┌──────┐ ───────────────────▶ ┌───────┐
//	│ free │                      │ held │                      │ ended │
//	└──────┘ ◀──┐                 └──────┘ ── given up: no ───▶ └───────┘
//	            │                    ▲         OnLost            │   │
//	            │                    └──── won (newer token) ────┘   │
//	            └──────────── settled: nothing of ours stands ───────┘
//
// A definite answer ends a term at once, silence ends it at the deadline. Trust ends before a release
// or a transfer is sent. An unknown outcome is never settled by reading, as the request may land after
// the read: only a conditional write that yields a newer token makes the handle alive again. Records of
// a Keeper that no handle claims are released, at least once per TTL.
//
// Work that was already running when its deadline passed, or a process that was stopped between
// CheckAlive and the next line, acts late. Against that the resource refuses old tokens (Fence).
//
// The values of a caller's context reach the store. docs/leases.md has more. Package store is what
// keeps leases, and leasetest tests leases of other makes.
package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/store"
)

// What users of leases meet of the stores that keep them; package store says what each is.
type (
	Token  = store.Token
	Owner  = store.Owner
	Record = store.Record
	Offer  = store.Offer
)

// Lease is the exclusive, time-bound right to one name. Every method is safe
// for concurrent use.
type Lease interface {
	// Acquire tries once, however many requests that takes, to own the name.
	//
	//   - true: it is ours (also when it was ours already; the token stays).
	//   - false, nil: at some moment during the call it was surely another's.
	//   - an error: not known, or refused. errors.Is tells ErrUnknown (no
	//     definite answer within the bounds), ErrDenied (the store refuses, and
	//     trying again is of no use yet), ErrClosed, ErrBadRecord (what
	//     stands under the name is no record of ours), and the context's error.
	//
	// A win that arrives after the caller gave up is released.
	Acquire(ctx context.Context) (bool, error)

	// Release gives the name up. CheckAlive is false before anything is sent,
	// and OnLost does not fire. It returns nil once the store confirmed that
	// nothing of this handle stands any more (at once if nothing did), or
	// ErrUnknown if no answer came within the bounds, or ErrDenied; what still stands
	// then is released in the background. An Acquire that is in flight ends with
	// ErrReleased (and ErrUnknown, if the store may have been asked), and what it
	// wins is given back. Call Release only after the guarded work stopped.
	Release(ctx context.Context) error

	// CheckAlive reports whether the name is ours at this moment. It reads a
	// clock and a deadline: no I/O, no allocation, no blocking.
	CheckAlive() bool

	// OnLost registers f to be called once for each loss, in an own goroutine,
	// after CheckAlive turned false and the term's context is done. It may be
	// called before Acquire. A loss before the registration is not told: check
	// CheckAlive after registering. stop reports whether f was registered until
	// now; a call of f that has begun is not waited for.
	OnLost(f func(Loss)) (stop func() bool)
}

// Loss says which term ended against its holder's will, and why.
type Loss struct {
	Name  string
	Token Token
	// Reason is one of ErrExpired, ErrTakenOver, ErrRecordGone, ErrInconsistent, ErrClosed, ErrAsked
	// and ErrParentLost (errors.Is). An ErrExpired that is ErrLapsed ended on time, by its policy
	// (WithRenewal).
	Reason error
}

// Term is one ownership of a name, from the moment it was won to its end. It is
// immutable but for ending: a later ownership is another Term with a higher
// token.
type Term interface {
	Name() string
	// Token is the fencing token of this ownership; 0 if the lease has none.
	Token() Token
	// Context is done when the term ends; context.Cause tells why (the reasons
	// of Loss, ErrReleased or ErrTransferred).
	Context() context.Context
	// CheckAlive is Lease.CheckAlive for this very term.
	CheckAlive() bool
	// Check is CheckAlive together with the monotonic clock reading it used.
	Check() (at time.Duration, alive bool)
}

// Continuing is implemented by terms that know whether they replaced an ownership
// of the same incarnation without a break.
type Continuing interface {
	// Continues returns the token of that ownership; 0 if the name was free
	// before, or if that is not known.
	Continues() Token
	// Adopted reports whether that ownership is the one that was transferred to
	// o: no other has owned the name since its holder gave it away. An Adopt
	// that came late, or whose first answer was lost, may win without that.
	Adopted(o Offer) bool
}

// Termed is implemented by leases that know their current term.
type Termed interface {
	// Term returns the current term; ok is false while there is none that lives.
	Term() (t Term, ok bool)
}

// HolderFinder is implemented by leases that can tell the holder of the name.
type HolderFinder interface {
	// Holder asks the store for the record of the name; ok is false if the name is free.
	// An error that is ErrBadRecord means that what stands there is no record.
	Holder(ctx context.Context) (r Record, ok bool, err error)
}

// Waiter is implemented by leases that can tell when the name becomes free.
type Waiter interface {
	// Wait returns nil when the name is believed to be free or is ours. It is a
	// hint: Acquire decides.
	Wait(ctx context.Context) error
	// OnFree calls f once, in an own goroutine, when the name is believed to be
	// free. stop reports whether it prevented the call.
	OnFree(f func()) (stop func() bool)
}

// TransferLease is implemented by leases that can be moved to another owner
// without a moment in which a third could win.
type TransferLease interface {
	// Offer is the receiving side's first step: it prepares to own the name and
	// says so in a value to be sent to the present holder.
	Offer(ctx context.Context) (Offer, error)
	// Transfer is the holder's step: it ends the term (the context's cause is
	// ErrTransferred, OnLost does not fire) and hands the name over to the
	// offer's maker. Call it after the guarded work stopped. On any error the
	// handle is not alive; Acquire settles the owner of the name, Release gives it
	// up. Errors: ErrNotHeld, ErrTransferRefused (surely not moved), ErrUnknown,
	// ErrClosed (surely not moved, unless it is ErrUnknown, too), ErrUnsupported, with
	// which the term goes on if the store is no Transferrer at all.
	// With ErrInvalid, for an offer that Offer.Validate refuses or
	// that is for another name, nothing was done and the term goes on.
	Transfer(ctx context.Context, o Offer) error
	// Adopt is the receiving side's last step: it takes up what was transferred
	// to the offer. false means that the name was surely not ours to take up;
	// an error that it is not known.
	Adopt(ctx context.Context, o Offer) (bool, error)
}

// Reasons of a loss, in Loss.Reason and as the cause of a term's context.
var (
	// ErrExpired: the deadline passed by the holder's own clock before a renewal
	// succeeded.
	ErrExpired = errors.New("lease expired")
	// ErrLapsed: the deadline passed of a lease that its policy did not renew (RenewNever,
	// RenewOnActivity, RenewByHand) and that was not renewed on request: it ended on time. It is
	// an ErrExpired.
	ErrLapsed = fmt.Errorf("it was not to be renewed: %w", ErrExpired)
	// ErrTakenOver: the store says that the name is another's.
	ErrTakenOver = errors.New("lease taken over")
	// ErrRecordGone: the store says that the record, or its session, is gone.
	ErrRecordGone = errors.New("lease record gone")
	// ErrAsked: its holder was asked to release it (Keeper.AskRelease).
	ErrAsked = errors.New("release asked for")
	// ErrClosed: the Keeper was closed. Also returned by calls after that, and by those
	// that it cut off: these are ErrUnknown, too, if the store may have been asked.
	ErrClosed = errors.New("lease keeper closed")
)

// Causes of a term's context that are no loss.
var (
	ErrReleased    = errors.New("lease released")
	ErrTransferred = errors.New("lease transferred")
)

var (
	// ErrUnknown: no definite answer came within the bounds; the operation may
	// or may not have been applied, now or later.
	ErrUnknown = errors.New("lease outcome unknown")
	// ErrNameInUse: this Keeper has a live handle of that name already.
	ErrNameInUse = errors.New("lease name in use on this keeper")
	// ErrHeld: another holds the name; the error is a *HeldError.
	ErrHeld = errors.New("lease held")
	// ErrNotHeld: the name is free; of an operation that needs a living term: there
	// is none.
	ErrNotHeld = errors.New("lease not held")
	// ErrTransferRefused: the transfer was surely not applied.
	ErrTransferRefused = errors.New("lease transfer refused")
	// ErrStale: a fence has seen a higher token.
	ErrStale = errors.New("stale fencing token")
	// ErrStop: f returns an error that is ErrStop to end RunForever.
	ErrStop = errors.New("not to be run again")
	// ErrNotDone: what Once ran has returned nil, and its user's done still says that it is not
	// done.
	ErrNotDone = errors.New("it was run, and is not done")
)

// Of stores, under the names by which users meet them; package store says what each means.
var (
	ErrInvalid      = store.ErrInvalid
	ErrUnsupported  = store.ErrUnsupported
	ErrDenied       = store.ErrDenied
	ErrBadRecord    = store.ErrBadRecord
	ErrParentLost   = store.ErrParentLost
	ErrInconsistent = store.ErrInconsistent
	ErrSetback      = store.ErrSetback
)

// Name builds a lease name from a kind and the segments a user gave, each
// escaped, so that names of different kinds or segments never collide:
// Name("singleton", "a/b") is "singleton/a%2Fb". It returns an error that is
// ErrInvalid if a segment is empty or not UTF-8, or the result is too long.
func Name(kind string, segments ...string) (string, error) {
	var b strings.Builder
	b.WriteString(kind)
	for _, s := range segments {
		if s == "" {
			return "", fmt.Errorf("%s name: %w: empty", kind, ErrInvalid)
		}
		if !utf8.ValidString(s) {
			return "", fmt.Errorf("%s name %.64q: %w: not UTF-8", kind, s, ErrInvalid)
		}
		b.WriteByte('/')
		escape(&b, s)
	}
	if b.Len() > store.MaxName {
		return "", fmt.Errorf("%s name %.32q…: %w: %d bytes when escaped, at most %d with its kind",
			kind, strings.Join(segments, "/"), ErrInvalid, b.Len(), store.MaxName)
	}
	name := b.String()
	return name, store.ValidateName(name)
}

// escape writes s with '%', '/' and control characters as %XX.
func escape(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' || c == '/' || c < ' ' || c == 0x7f {
			fmt.Fprintf(b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
}

func abbreviate(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}

// ErrChildHeld: a lease was not given up, as others that hang on it (WithParent) have lost
// their terms, and their owners have not released them: work may be running under them. A
// Release that says so is ErrUnknown, too: it goes on in the background, and the record stands,
// and is renewed if that is Automatic, until they are released; a later Acquire of the parent takes
// its place. A
// Transfer that says so is ErrTransferRefused, and surely not applied.
var ErrChildHeld = errors.New("a lease under it is not released")

// HeldError is the answer to an acquisition that was refused: another holds the name. It
// is ErrHeld.
type HeldError struct {
	// Record stood under the name when the store decided: it is of the same answer.
	Record Record
}

// Error says who holds the name.
func (e *HeldError) Error() string {
	o := e.Record.Owner
	at := ""
	if o.Address != "" {
		at = " at " + o.Address
	}
	return fmt.Sprintf("%v by %s%s (incarnation %s) under token %d", ErrHeld, o.ID, at, o.Incarnation, e.Record.Token)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Fence is the resource's side of fencing tokens: it remembers the highest
// token it has seen and refuses lower ones. Keep the highest token with the
// data it protects (NewFence takes what was kept): a fence that forgets lets a
// stale holder in. A holder's first act under a new token is to advance the
// fence; only then does it read what it is going to change.
//
// A Fence is safe for concurrent use. For data in a store with conditional
// writes, compare the token there instead.
type Fence struct {
	mu      sync.Mutex
	highest Token
}

// NewFence returns a fence that has seen highest.
func NewFence(highest Token) *Fence { return &Fence{highest: highest} }

// Advance is Do with nothing to write.
func (f *Fence) Advance(t Token) error { return f.Do(t, func() error { return nil }) }

// Do runs write under t: no other Do or Advance runs at the same time, so that
// check and write are one step. It returns ErrStale, without running write, if a
// higher token was seen or t is 0 (no token: nothing to fence by), else what
// write returns; ErrInvalid if write is nil, and then t was not seen.
func (f *Fence) Do(t Token, write func() error) error {
	if write == nil {
		return fmt.Errorf("token %d: write: %w: nil, Advance is Do with nothing to write", t, ErrInvalid)
	}
	f.mu.Lock()
	if highest := f.highest; t < highest || t == 0 {
		f.mu.Unlock()
		meters.RefusedByFence() // not under the lock: the meter is a user's
		return fmt.Errorf("token %d after %d: %w", t, highest, ErrStale)
	}
	defer f.mu.Unlock()
	f.highest = t
	return write()
}

// Highest returns the highest token seen.
func (f *Fence) Highest() Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// Ownership is what a store of other data gets from the owner that writes, so that it can
// refuse an earlier one: a Term is one, and so are singleton.Guarded and *sharding.Entity.
// Both methods are safe for concurrent use.
type Ownership interface {
	// Name is the lease's.
	Name() string
	// Token is the fencing token; 0 fences nothing.
	Token() Token
}
