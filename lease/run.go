package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"reflect"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/store"
)

// Run is the whole thing for code without actors: it waits until l is ours, runs
// f with a context that is done when the term ends or ctx is, waits for f to
// return, and releases l. One term, one call of f: to go on after a loss, call
// Run again. Calls of Run for one lease, through whatever wrappers (Unwrap), take
// turns: the next begins when the one before has released. So f must not wait for a
// Run of its own lease.
//
// It returns f's error, joined with the reason if the term ended before f
// returned (errors.Is: ErrExpired, ErrTakenOver, …; f is not called if it ended
// before f could begin) and with Release's error. An
// acquisition that fails is tried again, and so is one that another wins;
// ErrClosed, ErrBadRecord, ErrInvalid and the end of ctx make Run return
// without calling f; the end of ctx together with why the last attempt failed, if it
// did. The first of several attempts that fail is logged. A panic of f is passed on after the release.
func Run(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) error {
	o, err := runTerm(ctx, "lease.Run", l, nil, f)
	if err != nil {
		return err
	}
	return o.error()
}

// runTerm waits until l is ours, and runs f under it. An error means that f was not called, and
// that l is not ours. Before each attempt to acquire it asks before, if there is one, and ends
// with its error.
func runTerm(
	ctx context.Context, what string, l Lease, before func() error, f func(ctx context.Context, t Term) error,
) (o outcome, err error) {
	if err := checkRun(ctx, what, l, f); err != nil {
		return o, err
	}
	end, err := takeTurn(ctx, what, l, true)
	if err != nil {
		return o, err
	}
	defer end()
	if err := await(ctx, seekLease(l, before)); err != nil {
		return o, err
	}
	return runUnder(ctx, l, f), nil
}

// checkRun checks what runs are given.
func checkRun(ctx context.Context, what string, l Lease, f func(ctx context.Context, t Term) error) error {
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if input.Nil(l) || f == nil {
		return fmt.Errorf("%s: %w: the lease and f must not be nil", what, ErrInvalid)
	}
	return nil
}

// outcome is what became of f under one term.
type outcome struct {
	err     error // f's
	loss    error // why the term had ended before f returned, or before it could begin; nil: it had not
	release error
	began   time.Time // when f did; zero: it did not
}

func (o outcome) error() error { return errors.Join(o.err, o.loss, o.release) }

// tried is error for callers to whom ErrHeld says that f did not run: of an f that returned such, the
// text.
func (o outcome) tried() error {
	if errors.Is(o.err, ErrHeld) {
		o.err = errors.New(o.err.Error())
	}
	return o.error()
}

// runUnder runs f under l, which was just acquired, and releases it.
func runUnder(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) (o outcome) {
	t, stop := TermOf(l)
	defer stop()
	work, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(t.Context(), func() { cancel(context.Cause(t.Context())) })()
	defer func() { // also if f panics
		if !t.CheckAlive() {
			o.loss = cmp.Or(context.Cause(t.Context()), ErrExpired)
		}
		cancel(nil)
		// What f held must be given up even if ctx is done.
		o.release = l.Release(context.WithoutCancel(ctx))
	}()
	if t.CheckAlive() { // else it was lost before the work began
		noteWork(l, t, journal.Began)
		defer noteWork(l, t, journal.Ended)
		o.began = time.Now()
		o.err = f(work, t)
	}
	return o
}

// noteWork notes that work begins or ends under a term of l.
func noteWork(l Lease, t Term, kind string) {
	if h := handleOf(l); h != nil {
		h.k.note(h.k.clock.Now(), kind, h.name, t.Token(), "", nil)
	}
}

// sought is what is waited for: a lease, or a slot of a Pool.
type sought struct {
	try    func(ctx context.Context) (won bool, err error)
	before func() error                    // is asked before each attempt, and ends it; nil: nothing
	wait   func(ctx context.Context) error // until it may be free; nil: that can't be told
	handle *Handle                         // nil: it is of another make
	failed func(err error)                 // hears of the first of several failures
}

func seekLease(l Lease, before func() error) sought {
	s := sought{try: l.Acquire, before: before, handle: handleOf(l), failed: func(err error) { warn(l, "can't be acquired, trying on", err) }}
	if w, ok := As[Waiter](l); ok {
		s.wait = w.Wait
	}
	return s
}

// await acquires what is sought, however long that takes.
func await(ctx context.Context, s sought) error {
	pauses := backoff{least: time.Second, most: 10 * time.Second}
	var last error // of the attempts, if they fail now
	ended := func(err error) error {
		if last != nil {
			err = fmt.Errorf("%w; it could not be acquired: %w", err, last)
		}
		return err
	}
	for {
		if s.before != nil {
			if err := s.before(); err != nil {
				return err
			}
		}
		won, err := s.try(ctx)
		switch {
		case won:
			return nil
		case ctx.Err() != nil:
			return ended(ctx.Err())
		case errors.Is(err, ErrClosed), errors.Is(err, ErrBadRecord), errors.Is(err, ErrInvalid):
			return err
		}
		orphaned := errors.Is(err, ErrParentLost)
		if err != nil && last == nil && !orphaned { // that is not out of order
			s.failed(err)
		}
		last = err
		if s.wait != nil && err == nil {
			if err := s.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			pauses.next = 0 // a store that failed may be back any moment
		}
		var begins <-chan struct{}
		if orphaned && s.handle != nil {
			begins = s.handle.k.parentBegins(&s.handle.entry)
		}
		if err := pauses.rest(ctx, begins); err != nil {
			return ended(err)
		}
	}
}

// warn logs a warning about l: in its Keeper's log, which tells of an outage by itself, or the default.
func warn(l Lease, text string, err error) {
	log := boundary.Default().Warn
	if h := handleOf(l); h != nil {
		log = h.k.reach.aside
	}
	log(text, zap.String("lease", nameOf(l)), zap.Error(err))
}

func nameOf(l Lease) string {
	if n, ok := As[interface{ Name() string }](l); ok {
		return n.Name()
	}
	return fmt.Sprintf("%T", l)
}

// TermOf returns the term of a lease that was just acquired. What wraps a lease may
// narrow it: the term is alive while the outermost is, too, and its context ends with
// the outermost's OnLost as well. For a lease that
// has none (As finds no Termed) it makes one from CheckAlive and OnLost: its
// token is 0, and its clock is the system's. If the lease is not alive any more
// the term has ended. A CheckAlive of l, or a Check of its own Term, that panics ends the term, with
// a cause that is ErrInconsistent, and is not called again. stop frees what it registered, and
// ends a term that was made so: not the lease's own.
func TermOf(l Lease) (t Term, stop func()) {
	td, termed := As[Termed](l)
	if !termed {
		n := narrowed(bareTerm{l}, l)
		return n, n.follow()
	}
	var outer Lease
	if n, ok := td.(narrow); ok {
		td, outer = n.Termed, n.outer
	}
	t, ok := td.Term()
	if _, ours := t.(*term); ok && ours && outer == nil {
		return t, func() {}
	}
	if ok = ok && !input.Nil(t); !ok {
		t, outer = bareTerm{l}, nil
	}
	n := narrowed(t, outer)
	if stop = n.follow(); !ok {
		n.end(ErrExpired)
	}
	return n, stop
}

// bareTerm is the term of a lease that has none of its own, to be narrowed by that. The name is the
// innermost's.
type bareTerm struct{ l Lease }

func (b bareTerm) Name() string               { return nameOf(b.l) }
func (bareTerm) Token() Token                 { return 0 }
func (bareTerm) Context() context.Context     { return context.Background() }
func (bareTerm) CheckAlive() bool             { return true }
func (bareTerm) Check() (time.Duration, bool) { return store.SystemClock().Now().Mono, true }

// TryRun is Run for who does not wait: it makes one attempt (Acquire), and runs f if that wins.
// If another has the lease, the error is ErrHeld, with the holder as a *HeldError where the lease
// is a Keeper's, or can tell its holder (HolderFinder); f is not called. It is ErrHeld, too, while
// another call of Run or of its like, in this process, has the lease or waits for it. It is never
// ErrHeld if f ran: an error of f's that is so, for another lease was held, is returned as its text.
//
// Errors of Acquire are returned as they are: after ErrUnknown the lease may have been free, or
// won and given back. All else is as Run does it.
func TryRun(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) error {
	const what = "lease.TryRun"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	end, err := takeTurn(ctx, what, l, false)
	switch {
	case err != nil:
		return err
	case end == nil:
		return heldError(ctx, l)
	}
	defer end()
	won := false
	if h, ok := l.(*Handle); ok {
		_, err = h.AcquireTerm(ctx)
	} else if won, err = l.Acquire(ctx); err == nil && !won {
		err = heldError(ctx, l)
	}
	if err != nil {
		return err
	}
	return runUnder(ctx, l, f).tried()
}

// heldError says that l was not to be had, and by whom it is held, if that can be told.
func heldError(ctx context.Context, l Lease) error {
	err := ErrHeld
	if finder, ok := As[HolderFinder](l); ok {
		if r, held, failed := finder.Holder(ctx); failed == nil && held {
			err = &HeldError{Record: r}
		}
	}
	return fmt.Errorf("lease %q: %w", nameOf(l), err)
}

// Once has f run once in a cluster, however many call it: one caller runs it under l, the others
// wait until it has, and later callers find that it was done. It returns nil when it is done, by
// this caller or another.
//
// done, and not the lease, says that it was done: a lease ends with its holder, and what was
// done outlasts that. done reads what f leaves behind, such as a schema's version, and says true if
// nothing is left for f to do; f must have written that by the time it returns, best in the
// transaction of its work. It must read that where it was written: a replica that lags says false,
// and f is run again. done is asked at the beginning, each time that the lease may be free,
// under the lease before f is called, and after f has returned nil. It does not change anything, and
// may be called from many processes at once.
//
// What may happen:
//
//   - The process that runs f dies half way, or loses the lease: done says false, and f is run
//     again, here or by one that waited, once the lease has ended there. So f must be able to go on
//     from what it left half done, or write all or nothing.
//   - f returns an error under a term that stands: Once returns it, and f is not run again here.
//     One that waits runs it, unless done says true.
//   - done returns an error: Once returns it. What may fail in passing done repeats itself.
//   - f returns nil, and done still says false: an error that is ErrNotDone. Others would run it
//     for ever.
//   - A process that stands still while it runs f may go on beside the next: what f writes should
//     bear the term's token, or be under a lock of the database.
//
// f's context is done when the term ends or ctx does; f's panics and the errors of acquiring are as
// with Run. A process that crashed when f was done delays the others by the rest of its TTL at most.
// That the release failed is logged, and no error: it is done.
func Once(ctx context.Context, l Lease, done func(ctx context.Context) (bool, error), f func(ctx context.Context, t Term) error) error {
	const what = "lease.Once"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	if done == nil {
		return fmt.Errorf("%s: %w: done must not be nil", what, ErrInvalid)
	}
	ask := func() error { // errDone: it is
		if is, err := done(ctx); err != nil {
			return fmt.Errorf("%s, lease %q: whether it is done: %w", what, nameOf(l), err)
		} else if is {
			return errDone
		}
		return nil
	}
	work := func(ctx context.Context, t Term) error {
		if err := ask(); err != nil {
			return err
		}
		if !t.CheckAlive() { // the answer may be old
			return context.Cause(t.Context())
		}
		if err := f(ctx, t); err != nil {
			return err
		}
		return cmp.Or(ask(), fmt.Errorf("%s, lease %q: %w", what, nameOf(l), ErrNotDone))
	}
	pauses := backoff{least: 100 * time.Millisecond, most: 10 * time.Second}
	for {
		out, err := runTerm(ctx, what, l, ask, work)
		switch {
		case errors.Is(cmp.Or(err, out.err), errDone):
			if out.release != nil {
				warn(l, "what is run once is done, and its lease could not be released", out.release)
			}
			return nil
		case err != nil:
			return err
		case out.loss == nil || ctx.Err() != nil || errors.Is(out.loss, ErrClosed):
			return out.error()
		}
		warn(l, "the lease was lost while what is run once was not done", out.error())
		if err := pauses.after(ctx, l, out.loss); err != nil {
			return errors.Join(err, out.error())
		}
	}
}

// errDone ends the waiting for a lease that is not needed any more.
var errDone = errors.New("it is done")

// RunOption sets something of RunForever.
type RunOption func(*runOptions)

type runOptions struct{ least, most time.Duration }

// WithBackoff sets the pauses of RunForever: the first is least, each is twice the one before and
// most at the longest, and of each between half and all is taken, at random. Default 1 s and 30 s;
// least is 1 ms at least, most is at least that and a year at most.
func WithBackoff(least, most time.Duration) RunOption {
	return func(o *runOptions) { o.least, o.most = least, most }
}

// RunForever calls f under l, as Run does, again and again: it leads, and after a loss it waits and
// leads again. The result of f decides what is next:
//
//   - an error that is ErrStop: RunForever returns it;
//   - the term had ended before f returned: again, after a pause, whatever else f returned. So it
//     is if f gave the lease up itself, by Release or Transfer. If it was asked to (ErrAsked), another
//     node has a TTL more to take it;
//   - nil, and the term stood: f's work is over for good, and RunForever returns nil;
//   - another error: it is logged, the lease is released, so that another may try, and after a
//     pause this one does, too;
//   - a panic is passed on after the release.
//
// Pauses grow, with jitter (WithBackoff), and start again after a term that lasted longer than the
// longest. Between terms other calls of Run for l have their turn.
//
// It ends with ctx, and then returns what Run would: f's error, or that of ctx together with why
// the last attempt failed. It ends with ErrClosed when the Keeper or the handle was closed, and with
// ErrInvalid. Anything else that keeps it from acquiring is waited out, ErrBadRecord too.
func RunForever(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error, opts ...RunOption) error {
	const what = "lease.RunForever"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	o := runOptions{least: time.Second, most: 30 * time.Second}
	if err := input.Apply(&o, nil, ErrInvalid, opts); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if o.least < time.Millisecond || o.most < o.least || o.most > longest {
		return fmt.Errorf("lease.WithBackoff: %w: %v and %v, must be at least 1ms, the second at least the first, and at most %v",
			ErrInvalid, o.least, o.most, longest)
	}
	pauses := backoff{least: o.least, most: o.most}
	for waits := false; ; {
		out, err := runTerm(ctx, what, l, nil, f)
		ended := errors.Join(err, out.error())
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)):
			return err
		case err == nil && out.loss == nil && out.err == nil, errors.Is(out.err, ErrStop), errors.Is(out.loss, ErrClosed):
			return ended
		case ctx.Err() != nil && out.err != nil && out.loss == nil:
			return ended
		}
		if !out.began.IsZero() && time.Since(out.began) > o.most {
			pauses.next = 0
		}
		if err == nil || !waits { // it goes on to fail: that was told
			warn(l, "the work under a lease has ended, it is begun again after a pause", ended)
		}
		waits = err != nil
		if err := pauses.after(ctx, l, out.loss); err != nil {
			return fmt.Errorf("%w; before that: %w", err, ended)
		}
	}
}

// backoff is pauses that grow from least to most, each taken with jitter: between half of it and
// all of it.
type backoff struct {
	least, most time.Duration
	next        time.Duration // 0: least
}

// after pauses after a term of l. A lease that was released because that was asked for is left to others for a
// TTL first.
func (b *backoff) after(ctx context.Context, l Lease, loss error) error {
	if h := handleOf(l); h != nil && errors.Is(loss, ErrAsked) {
		h.k.rest(ctx, h.pool.ttl, h.k.ctx.Done())
	}
	return b.rest(ctx, nil)
}

// rest waits until the pause that is due is over, or begins is closed, or ends with ctx and its error.
func (b *backoff) rest(ctx context.Context, begins <-chan struct{}) error {
	d := max(b.next, b.least)
	b.next = min(2*d, b.most)
	select {
	case <-time.After(time.Duration(float64(d) * (0.5 + mrand.Float64()/2))):
	case <-begins:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// What follows makes the calls of Run for one lease take turns: each then has a term
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
	l, ok := innermost(l)
	if !ok {
		return nil, fmt.Errorf("%s: %w: a %T wraps itself, or is wrapped more than %d times (Unwrap)", what, ErrInvalid, l, mostWrappers)
	}
	if !reflect.ValueOf(l).Comparable() {
		return nil, fmt.Errorf("%s: %w: a %T can't be told from another, must be a pointer or have Unwrap", what, ErrInvalid, l)
	}
	turns.Lock()
	t := turns.of[l]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		turns.of[l] = t
	}
	t.calls++
	turns.Unlock()
	leave := func() {
		turns.Lock()
		defer turns.Unlock()
		if t.calls--; t.calls == 0 {
			delete(turns.of, l)
		}
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

// innermost returns what l wraps: the same for all wrappers of one lease. ok is false
// if there is no end of wrappers.
func innermost(l Lease) (inner Lease, ok bool) {
	n := 0
	for inner = range layers(l) {
		if h, ok := inner.(interface{ handle() *Handle }); ok {
			return h.handle(), true // also from what embeds one
		}
		n++
	}
	return inner, n < mostWrappers
}

// handleOf returns the handle that l is, or wraps; nil if it is a lease of another make.
func handleOf(l Lease) *Handle {
	inner, _ := innermost(l)
	h, _ := inner.(*Handle)
	return h
}

// handle is the handle itself, for a type that embeds it.
func (h *Handle) handle() *Handle { return h }
