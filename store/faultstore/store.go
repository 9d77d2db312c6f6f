package faultstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
)

// Store passes calls on to another store, with faults. Make one with Wrap. It
// is safe for concurrent use.
//
// It has every optional capability of a store; where the inner store lacks one,
// the answer is store.ErrUnsupported, without asking the rule.
type Store struct {
	mu       sync.Mutex
	inner    store.Store
	rule     func(Call) Fault
	lag      func() time.Duration                        // of the next event of a watch
	healed   chan struct{}                               // closed by Heal; nil: no partition
	cuts     map[context.Context]context.CancelCauseFunc // of watches
	injected [ops]int
	landing  int        // late landings that are not done
	landed   *sync.Cond // landing became 0
}

// Wrap returns a Store that passes everything on to inner until it gets
// otherwise.
func Wrap(inner store.Store) *Store {
	s := &Store{inner: inner, cuts: map[context.Context]context.CancelCauseFunc{}}
	s.landed = sync.NewCond(&s.mu)
	return s
}

// SetRule makes rule pick the fault of every later call; nil: no faults. The
// rule runs on the caller's goroutine, at several calls at once if they are made
// so, and before any waiting; it may call SetRule, but not keep the Call's
// slices.
func (s *Store) SetRule(rule func(Call) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rule = rule
}

// On is a rule by which every call of these operations meets f.
func On(f Fault, ops ...Op) func(Call) Fault {
	return func(c Call) Fault {
		if slices.Contains(ops, c.Op) {
			return f
		}
		return Fault{}
	}
}

// SetLag makes watches lag behind: lag picks for how long the next event of one, from
// store.EventSynced on, is held up, and with it those behind it. nil: for no time. It
// runs on the goroutine of who watches, several at once.
func (s *Store) SetLag(lag func() time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
}

// Partition holds up every call, on its way there and back, until Heal or the
// end of its context, and ends the watches that run with ErrInjected.
func (s *Store) Partition() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healed == nil {
		s.healed = make(chan struct{})
	}
	s.cutWatches()
}

// Heal ends a partition; the calls that were held up go on.
func (s *Store) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healed != nil {
		close(s.healed)
		s.healed = nil
	}
}

// CutWatches ends the watches that run with ErrInjected.
func (s *Store) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutWatches()
}

// Wait returns when no late landing is pending or running.
func (s *Store) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.landing > 0 {
		s.landed.Wait()
	}
}

// Injected returns how many calls of op met a fault: one of the rule's other
// than None, a context that ended while a partition held the call up, or a watch
// that was cut. A call counts once.
func (s *Store) Injected(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op >= ops {
		return 0
	}
	return s.injected[op]
}

func (s *Store) now() store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

// Limits returns those of the inner store.
func (s *Store) Limits() store.Limits { return s.now().Limits() }

// OpenSession passes the call on as the rule says.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	return do(ctx, s, Call{Op: OpenSession, Session: want.ID}, func(ctx context.Context) (store.Grant, error) {
		return s.now().OpenSession(ctx, want)
	})
}

// CloseSession passes the call on as the rule says.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	_, err := do(ctx, s, Call{Op: CloseSession, Session: want.ID}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.now().CloseSession(ctx, want)
	})
	return err
}

// Acquire passes the call on as the rule says.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	call := Call{Op: Acquire, Session: want.ID}
	claims = slices.Clone(claims) // they may land after the caller went on
	for i := range claims {
		claims[i].Metadata = maps.Clone(claims[i].Metadata)
		call.Names = append(call.Names, claims[i].Name)
	}
	return do(ctx, s, call, func(ctx context.Context) ([]store.Outcome, error) {
		return s.now().Acquire(ctx, want, claims)
	})
}

// Renew passes the call on as the rule says.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	call := Call{Op: Renew}
	sessions = slices.Clone(sessions)
	for _, want := range sessions {
		call.Sessions = append(call.Sessions, want.ID)
	}
	if len(sessions) > 0 {
		call.Session = sessions[0].ID
	}
	return do(ctx, s, call, func(ctx context.Context) ([]store.Grant, error) {
		return s.now().Renew(ctx, sessions)
	})
}

// Release passes the call on as the rule says.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	call := Call{Op: Release}
	held = slices.Clone(held)
	for _, h := range held {
		call.Names = append(call.Names, h.Name)
	}
	return do(ctx, s, call, func(ctx context.Context) ([]store.Outcome, error) {
		return s.now().Release(ctx, held)
	})
}

// Transfer passes the call on as the rule says.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if _, ok := s.now().(store.Transferrer); !ok {
		return nil, missing(Transfer)
	}
	call := Call{Op: Transfer}
	moves = slices.Clone(moves)
	for i := range moves {
		moves[i].Metadata = maps.Clone(moves[i].Metadata)
		call.Names = append(call.Names, moves[i].Name)
	}
	return do(ctx, s, call, func(ctx context.Context) ([]store.Outcome, error) {
		return s.now().(store.Transferrer).Transfer(ctx, moves)
	})
}

// Get passes the call on as the rule says.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	names = slices.Clone(names)
	call := Call{Op: Get, Names: slices.Clone(names)}
	return do(ctx, s, call, func(ctx context.Context) ([]store.Record, error) {
		return s.now().Get(ctx, names...)
	})
}

// missing is the answer to a call that the inner store can't serve.
func missing(op Op) error { return fmt.Errorf("faultstore: %s: %w", op, store.ErrUnsupported) }

// Whole is a store with all that one can have.
type Whole interface {
	store.Store
	store.Transferrer
	store.Watcher
}

// Switch is a Store in whose place another can be put, as when a server's data is
// lost, or restored from an older copy. Safe for concurrent use.
type Switch struct{ *Store }

var _ Whole = (*Switch)(nil)

// NewSwitch returns a Switch in front of s.
func NewSwitch(s Whole) *Switch { return &Switch{Wrap(s)} }

// To puts s in place. Calls that the store before has got end there, those that a fault holds up on their
// way reach s; watches end with ErrInjected.
func (w *Switch) To(s Whole) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inner = s
	w.cutWatches()
}

// Restore makes an empty store hold records, under their own tokens, as a copy that
// was put in place does; tokens to come are above beyond, too, as if it had been
// restored so. It is for stores that number all they issue without a gap, such as
// backends/memory. Records of one session expire together, a TTL from now.
func Restore(ctx context.Context, to store.Store, records []store.Record, beyond store.Token) error {
	own := store.Session{ID: 1 << 62, Owner: store.Owner{ID: "restore", Incarnation: "restore"}, TTL: time.Minute}
	if _, err := to.OpenSession(ctx, own); err != nil {
		return err
	}
	last := store.Token(0)
	put := func(s store.Session, c store.Claim) error {
		outs, err := to.Acquire(ctx, s, []store.Claim{c})
		if err != nil {
			return err
		}
		if !outs[0].OK {
			return fmt.Errorf("faultstore: restore %q: refused: %+v", c.Name, outs[0])
		}
		last = outs[0].Record.Token
		return nil
	}
	standing := store.Token(0)
	advance := func(until store.Token) error {
		for last < until {
			if err := put(own, store.Claim{Name: "restore", Nonce: 1, Supersedes: standing}); err != nil {
				return err
			}
			standing = last
		}
		return nil
	}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Token, b.Token) })
	for _, r := range records {
		if err := advance(r.Token - 1); err != nil {
			return err
		}
		s := store.Session{ID: r.Session, Owner: r.Owner, TTL: r.TTL}
		if _, err := to.OpenSession(ctx, s); err != nil {
			return err
		}
		if err := put(s, store.Claim{Name: r.Name, Nonce: r.Nonce, Metadata: r.Metadata}); err != nil {
			return err
		}
		if last != r.Token {
			return fmt.Errorf("faultstore: restore %q: token %d, must be %d: it stands in a store that was not empty, or has gaps",
				r.Name, last, r.Token)
		}
	}
	if err := advance(beyond); err != nil {
		return err
	}
	return to.CloseSession(ctx, own)
}
