package sequencer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/lease"
)

var (
	// ErrFull: Fences remembers as many names as it may, and can forget none.
	ErrFull = errors.New("no room for another name's fence")
	// ErrBusy: what runs under an earlier token has not ended.
	ErrBusy = errors.New("work under an earlier token still runs")
)

// Fences remembers the highest token of each of many names, and refuses lower ones. Make one with
// NewFences. It is safe for concurrent use.
//
// What it refuses, it refuses for good: a name's mark never sinks. Where it was given no Reader it
// forgets nothing but by Forget, and refuses further names, with ErrFull, when it has WithLimit of
// them. With a Reader marks are a memory of what the store said: of names for which nothing runs
// any may be forgotten when room is needed, and is asked for again when it is needed.
type Fences struct {
	settings

	mu    sync.Mutex
	marks map[string]*mark
}

// mark is what is known of one name. Fences.mu guards all of it.
type mark struct {
	fence lease.Fence // holds the highest token
	users int         // calls that need it: it stays while there are any
	asked question    // of the Reader
	last  *span       // of the latest token that something ran under; nil: nothing runs
}

// question is what is known of requests to the Reader about a name, of which there is one at a time. It
// is a Reader with what was answered last.
type question struct {
	began, again time.Time     // the last; and the next not before
	over         chan struct{} // closed when the last is answered; nil: none is under way
	rec          lease.Record
	err          error
}

func (q *question) Get(context.Context, string) (lease.Record, error) { return q.rec, q.err }

// moment is how long after a request that refused a token the next begins: tokens that were made up
// cost the store no more than that.
const moment = 100 * time.Millisecond

// span is what runs under one token.
type span struct {
	token lease.Token
	calls int           // that run, or wait for those of former
	over  chan struct{} // closed when there are none, and a later token was seen

	ctx    context.Context // done when a later token was seen
	cancel context.CancelCauseFunc
	former *span // of an earlier token, that may still run
}

// Option sets something of Fences.
type Option func(*settings)

type settings struct {
	missing  input.Missing
	reader   Reader
	limit    int
	patience time.Duration
	began    map[string]lease.Token // the marks from the start
}

// WithReader has a token that is higher than the mark of its name, or the first of it, checked
// with the store before it is believed: one request for each change of owner, one at a time for each
// name, and 100 ms after one that refused a token at the earliest. It is called by several goroutines
// at once. It must not be nil. Default: any token is believed.
func WithReader(r Reader) Option {
	return func(s *settings) { s.missing.Check("WithReader", r); s.reader = r }
}

// WithLimit bounds how many names are remembered, 1 to 2³¹-1. Default 100 000.
func WithLimit(names int) Option { return func(s *settings) { s.limit = names } }

// WithPatience bounds how long a call waits until what runs under an earlier token has ended, and
// before that for the Reader. Above 0, at most a year. Default 10 s.
func WithPatience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// WithMarks has the highest tokens of names from the start, such as those that Marks returned
// before the process ended. They are copied. Default: none.
func WithMarks(marks map[string]lease.Token) Option {
	return func(s *settings) { s.began = marks }
}

// NewFences returns an empty Fences, or one with marks. The error is lease.ErrInvalid: an option is
// out of its bounds, or a mark is no valid sequencer, or there are more than the limit.
func NewFences(opts ...Option) (*Fences, error) {
	s := settings{limit: 100_000, patience: 10 * time.Second}
	if err := input.Apply(&s, &s.missing, lease.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("sequencer.NewFences: %w", err)
	}
	bad := func(option string, got any, bound string) (*Fences, error) {
		return nil, fmt.Errorf("sequencer.NewFences: %s: %w: %v, must be %s", option, lease.ErrInvalid, got, bound)
	}
	switch {
	case s.limit < 1 || s.limit > input.MaxCount:
		return bad("WithLimit", s.limit, fmt.Sprintf("at least 1 and at most %d", input.MaxCount))
	case s.patience <= 0 || s.patience > input.Longest:
		return bad("WithPatience", s.patience, fmt.Sprintf("above 0 and at most %v", input.Longest))
	case len(s.began) > s.limit:
		return bad("WithMarks", fmt.Sprint(len(s.began), " names"), fmt.Sprintf("at most WithLimit, %d", s.limit))
	}
	f := &Fences{settings: s, marks: make(map[string]*mark, len(s.began))}
	for name, token := range s.began {
		if err := (Sequencer{name, token}).Validate(); err != nil {
			return nil, fmt.Errorf("sequencer.NewFences: WithMarks: %w", err)
		}
		m := &mark{}
		_ = m.fence.Advance(token) // it is above 0
		f.marks[name] = m
	}
	f.began = nil
	return f, nil
}

// Advance is Do with nothing to run: the token is seen, and nothing of an earlier one runs any more.
func (f *Fences) Advance(ctx context.Context, s Sequencer) error {
	if err := f.check(ctx, s); err != nil {
		return err
	}
	if f.known(s) {
		return nil
	}
	return f.Do(ctx, s, func(context.Context) error { return nil })
}

// Do runs work under s, whose token it has seen from then on, and returns work's error. Work of the
// same token runs side by side. Work of a later token waits until that of earlier ones has ended;
// their contexts are done when it comes, with a cause that is lease.ErrStale.
//
// work is not run, and the error says why:
//
//   - lease.ErrStale, a *StaleError: a higher token was seen, or came while it waited; or, with a
//     Reader, the store says so.
//   - lease.ErrUnknown: the Reader could not tell.
//   - ErrBusy: work of an earlier token has not ended within WithPatience, or before ctx did: then
//     ctx's error, too.
//   - ErrFull, lease.ErrInvalid, and that of ctx.
//
// A panic of work is passed on. work must not call Do or Advance of
// the same name: under a later token that would wait for itself.
func (f *Fences) Do(ctx context.Context, s Sequencer, work func(ctx context.Context) error) error {
	if err := f.check(ctx, s); err != nil {
		return err
	}
	if work == nil {
		return fmt.Errorf("sequencer %v: work: %w: nil, Advance is Do with nothing to run", s, lease.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sequencer %v: %w", s, err)
	}
	m, p, err := f.admit(ctx, s)
	if err != nil {
		return counted(err)
	}
	defer f.leave(s.Name, m, p)
	if err := f.await(ctx, s, m, p); err != nil {
		return counted(err)
	}
	under, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	return work(under)
}

// counted returns why work was not run, and counts it for the metrics if its token is old.
func counted(err error) error {
	if errors.Is(err, lease.ErrStale) {
		meters.RefusedByFence()
	}
	return err
}

// Marks returns the highest token of each name, for WithMarks.
func (f *Fences) Marks() map[string]lease.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	marks := make(map[string]lease.Token, len(f.marks))
	for name, m := range f.marks {
		if t := m.fence.Highest(); t > 0 {
			marks[name] = t
		}
	}
	return marks
}

// Forget forgets the mark of name, and reports whether it did: there is none, or it is in use, if
// not. Without a Reader an earlier owner is let in again, so it is for names that no one will use
// any more, and for a store whose history went back (lease.Keeper.AcceptHistory).
func (f *Fences) Forget(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.marks[name]
	if m == nil || m.users > 0 {
		return false
	}
	delete(f.marks, name)
	return true
}

// check is the beginning of a call.
func (f *Fences) check(ctx context.Context, s Sequencer) error {
	if err := input.Call(ctx, f != nil && f.marks != nil, "sequencer.NewFences", lease.ErrInvalid); err != nil {
		return fmt.Errorf("sequencer: %w", err)
	}
	return s.Validate()
}

// known reports whether s is of the highest token, and nothing of an earlier one runs.
func (f *Fences) known(s Sequencer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.marks[s.Name]
	return m != nil && m.fence.Highest() == s.Token && (m.last == nil || m.last.token == s.Token && m.last.former == nil)
}

// admit makes s seen, and counts a call under its token.
func (f *Fences) admit(ctx context.Context, s Sequencer) (*mark, *span, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.marks[s.Name]
	if m == nil {
		if len(f.marks) >= f.limit && !f.makeRoomLocked() {
			return nil, nil, fmt.Errorf("sequencer %v: %w: %d are remembered (WithLimit)", s, ErrFull, f.limit)
		}
		m = &mark{}
		f.marks[s.Name] = m
	}
	m.users++ // it is not forgotten while the store is asked, or what it said would count too late
	if err := f.believeLocked(ctx, m, s); err != nil {
		f.unuseLocked(s.Name, m)
		return nil, nil, err
	}
	if seen := m.fence.Highest(); s.Token < seen {
		f.unuseLocked(s.Name, m)
		return nil, nil, &StaleError{s, seen}
	}
	_ = m.fence.Advance(s.Token)
	p := m.last
	if p == nil || p.token != s.Token {
		p = m.succeedLocked(s)
	}
	p.calls++
	return m, p, nil
}

// believeLocked asks the Reader of what is above the mark, unless a request for another call began after
// this one. It unlocks f.mu meanwhile.
func (f *Fences) believeLocked(ctx context.Context, m *mark, s Sequencer) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	q, came := &m.asked, time.Now()
	for f.reader != nil && s.Token > m.fence.Highest() {
		over, wait := q.over, time.Until(q.again)
		switch {
		case over != nil:
			wait = f.patience // ctx ends before
		case q.began.After(came) && (q.err == nil || errors.Is(q.err, lease.ErrNotHeld)): // another error is the asker's
			return q.judge(ctx, m, s)
		case wait <= 0:
			over = make(chan struct{})
			q.began, q.over = time.Now(), over
			f.mu.Unlock()
			rec, err := boundary.Get(func() (lease.Record, error) { return f.reader.Get(ctx, s.Name) })
			f.mu.Lock()
			close(over)
			q.rec, q.err, q.over = rec, err, nil
			return q.judge(ctx, m, s)
		}
		f.mu.Unlock()
		select {
		case <-over:
		case <-time.After(wait):
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return fmt.Errorf("sequencer %v: %w: %w", s, lease.ErrUnknown, context.Cause(ctx))
		}
	}
	return nil
}

// judge is what the answer says of s.
func (q *question) judge(ctx context.Context, m *mark, s Sequencer) error {
	err := s.Check(ctx, q)
	var stale *StaleError
	if errors.As(err, &stale) {
		q.again = q.began.Add(moment)
		if stale.Superseded() {
			_ = m.fence.Advance(stale.Seen) // it is above 0; the next need not ask
		}
	}
	return err
}

// succeedLocked begins what runs under a token that is above those before.
func (m *mark) succeedLocked(s Sequencer) *span {
	former := m.last
	m.last = &span{token: s.Token, former: former, over: make(chan struct{})}
	m.last.ctx, m.last.cancel = context.WithCancelCause(context.Background())
	if former == nil {
		return m.last
	}
	former.cancel(&StaleError{Sequencer{s.Name, former.token}, s.Token})
	if former.calls == 0 { // none is left to say that it is over
		m.last.former = former.former
	}
	return m.last
}

// await returns when nothing of an earlier token runs.
func (f *Fences) await(ctx context.Context, s Sequencer, m *mark, p *span) error {
	var late <-chan time.Time
	for {
		f.mu.Lock()
		former, stale := p.former, p != m.last
		f.mu.Unlock()
		if stale {
			return context.Cause(p.ctx)
		}
		if former == nil {
			return nil
		}
		if late == nil {
			late = time.After(f.patience)
		}
		select {
		case <-former.over:
			f.mu.Lock()
			if p.former == former {
				p.former = former.former
			}
			f.mu.Unlock()
		case <-p.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("sequencer %v: %w: %w", s, ErrBusy, context.Cause(ctx))
		case <-late:
			return fmt.Errorf("sequencer %v: %w: token %d, after %v", s, ErrBusy, former.token, f.patience)
		}
	}
}

// leave ends a call.
func (f *Fences) leave(name string, m *mark, p *span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.unuseLocked(name, m)
	if p.calls--; p.calls == 0 && p != m.last {
		close(p.over)
	}
}

// unuseLocked ends a use of a mark. One that has seen nothing is none.
func (f *Fences) unuseLocked(name string, m *mark) {
	if m.users--; m.users > 0 {
		return
	}
	if m.last != nil { // nothing runs
		m.last.cancel(nil)
		m.last = nil
	}
	if m.fence.Highest() == 0 && f.reader == nil { // else it says when the Reader was asked
		delete(f.marks, name)
	}
}

// makeRoomLocked forgets a mark that is not in use, if the store can be asked again.
func (f *Fences) makeRoomLocked() bool {
	if f.reader == nil {
		return false
	}
	for name, m := range f.marks {
		if m.users == 0 {
			delete(f.marks, name)
			return true
		}
	}
	return false
}
