// Package settler is a careful client of a store, for kits that run while its servers are disturbed
// (storetest.Disturbed): it repeats requests that got no answer, and tells one definite outcome of
// them all.
package settler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Whole is a store with all that a store may have.
type Whole interface {
	store.Store
	store.Transferrer
	store.Watcher
}

// Store is a careful client: it repeats requests that got no answer until one
// does, and tells its caller one definite outcome of them all; or, if what it
// knows does not allow that, an error.
type Store struct {
	inner    Whole
	ledger   *Ledger
	patience Patience
}

// New makes a careful client of inner. All clients of one store share a Ledger.
func New(inner Whole, known *Ledger, p Patience) *Store { return &Store{inner, known, p} }

// Inner is what New was given.
func (s *Store) Inner() Whole { return s.inner }

// Patience is how long a Store waits for one answer, and for all.
type Patience struct {
	Attempt time.Duration // for the first answer; then twice as long, up to eight times
	Pause   time.Duration // between attempts, as above
	All     time.Duration // where the caller has no deadline
}

// Tally counts what Stores met.
type Tally struct {
	Failed     atomic.Int64 // requests without an answer
	Settled    atomic.Int64 // calls that had such, and told their caller a definite outcome
	Evident    atomic.Int64 // of these: by the nonces of records
	Eliminated atomic.Int64 // of these: by elimination
	Late       atomic.Int64 // records of requests that landed after their callers had left
}

func (t *Tally) String() string {
	return fmt.Sprintf("%d requests got no answer; %d calls settled, %d by nonces, %d by elimination; %d late landings",
		t.Failed.Load(), t.Settled.Load(), t.Evident.Load(), t.Eliminated.Load(), t.Late.Load())
}

// add counts a call that settled something so.
func (t *Tally) add(evident, eliminated bool) {
	if evident {
		t.Evident.Add(1)
	}
	if eliminated {
		t.Eliminated.Add(1)
	}
}

// errMore asks for another attempt at once.
var errMore = errors.New("not all is answered")

// ErrUnsettled: what is known allows no definite outcome.
var ErrUnsettled = errors.New("not settled: the outcome is not known")

// answers tells whether err is a definite answer to a request.
func answers(err error) bool {
	return err == nil || errors.Is(err, store.ErrSessionGone) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported)
}

// repeat makes attempts until one gets an answer or the caller's time is over.
func (s *Store) repeat(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience.All)
	defer cancel()
	failed := false
	for times := time.Duration(1); ; {
		once, cancel := context.WithTimeout(ctx, times*s.patience.Attempt)
		err := attempt(once)
		cancel()
		if errors.Is(err, errMore) && ctx.Err() == nil {
			continue
		}
		if answers(err) {
			if failed {
				s.ledger.tally.Settled.Add(1)
			}
			return err
		}
		if errors.Is(err, ErrUnsettled) {
			return err
		}
		if ctx.Err() == nil {
			failed = true
			s.ledger.tally.Failed.Add(1)
			select {
			case <-time.After(times * s.patience.Pause):
				times = min(2*times, 8)
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) Limits() store.Limits { return s.inner.Limits() }

// Acquire settles by nonces: a record that bears the claim's was won by an attempt
// that got no answer.
func (s *Store) Acquire(ctx context.Context, sess store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if ctx.Err() != nil {
		return s.inner.Acquire(ctx, sess, claims)
	}
	asks := make([]*ask, len(claims))
	for i, c := range claims {
		asks[i] = s.ledger.ask(askKey{c.Name, sess.ID, c.Nonce}, c.Supersedes)
	}
	outs := make([]store.Outcome, len(claims))
	left := upTo(len(claims))
	evident := false
	err := s.repeat(ctx, func(ctx context.Context) error {
		if err := s.bury(ctx, sess.ID); err != nil {
			return err
		}
		got, err := s.inner.Acquire(ctx, sess, pick(claims, left))
		_, haunted := s.ledger.haunted(sess.ID)
		switch gone := errors.Is(err, store.ErrSessionGone); {
		case gone:
			return s.gone(err, asks, outs, &left, &evident)
		case err != nil:
			for _, i := range left {
				s.ledger.lost(asks[i])
			}
			return err
		case len(got) != len(left):
			outs, left = got, nil // as it is
			return nil
		case haunted:
			return errMore // what was won goes with the session
		}
		var again []int
		for j, i := range left {
			var more error
			if outs[i], more = s.claimed(ctx, asks[i], got[j]); more != nil {
				again, err = append(again, i), more
			}
			evident = evident || outs[i].OK && !got[j].OK
		}
		left = again
		return err
	})
	if err != nil {
		return nil, err
	}
	s.ledger.tally.add(evident, false)
	return outs, nil
}

// claimed takes an answer to a claim. An error means that there must be another
// attempt.
func (s *Store) claimed(ctx context.Context, a *ask, out store.Outcome) (store.Outcome, error) {
	if !out.OK {
		if rec, ok := s.ledger.landed(a, out.Record); ok {
			out = store.Outcome{OK: true, Record: rec}
		}
	}
	if out.OK {
		s.ledger.answered(a, out.Record)
		return out, nil
	}
	if out.Record.Token != 0 && !s.ledger.show(out.Record) {
		if _, err := s.inner.Release(ctx, []store.Held{out.Record.Held()}); err != nil {
			return out, err
		}
		return out, errMore
	}
	s.ledger.answered(a, store.Record{})
	return out, nil
}

// gone takes the answer that the session is gone. Nothing of it stands then; but
// claims may have been applied before, and been seen.
func (s *Store) gone(err error, asks []*ask, outs []store.Outcome, left *[]int, evident *bool) error {
	var never []int
	for _, i := range *left {
		if rec, ok := s.ledger.landed(asks[i], store.Record{}); ok {
			outs[i] = store.Outcome{OK: true, Record: rec}
			s.ledger.answered(asks[i], rec)
			*evident = true
		} else {
			never = append(never, i)
		}
	}
	switch *left = never; len(never) {
	case 0:
		return nil
	case len(asks):
		for _, a := range asks {
			s.ledger.answered(a, store.Record{})
		}
		return err
	}
	return ErrUnsettled // some were applied and others not: there is no such answer
}

// Release settles by elimination: see ledger.decide.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	if ctx.Err() != nil {
		return s.inner.Release(ctx, held)
	}
	enders := make([]*ender, len(held))
	for i, h := range held {
		enders[i] = s.ledger.ender(h)
	}
	var outs []store.Outcome
	failed := false
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		outs, err = s.inner.Release(ctx, held)
		failed = failed || err != nil
		return err
	})
	if err != nil || len(outs) != len(held) {
		for _, e := range enders {
			s.ledger.set(e, silent)
		}
		return outs, err
	}
	open := make([]*ender, len(held))
	for i, e := range enders {
		switch {
		case outs[i].OK:
			s.ledger.set(e, applied)
			continue
		case !failed:
			s.ledger.set(e, refused)
		default:
			open[i] = e
		}
		if r := outs[i].Record; r.Token != 0 && !s.ledger.show(r) {
			outs[i].Record = store.Record{}
		}
	}
	return outs, s.decide(ctx, open, func(i int) { outs[i] = store.Outcome{OK: true} }, func(int) {})
}

// decide settles those that are still in flight, nil for the others, and says of each
// whether it counts as applied, or surely is not.
func (s *Store) decide(ctx context.Context, open []*ender, counts, not func(i int)) error {
	for _, e := range open {
		if e != nil {
			s.ledger.stick(e) // before any of them waits for the others
		}
	}
	eliminated := false
	var err error
	for i, e := range open {
		if e == nil {
			continue
		}
		switch s.ledger.decide(ctx, e) {
		case applied:
			counts(i)
			eliminated = true
		case refused:
			not(i)
		case silent:
			err = fmt.Errorf("%+v: %w", e.held, ErrUnsettled)
		}
	}
	if err != nil {
		return err
	}
	s.ledger.tally.add(false, eliminated)
	return nil
}

// Transfer settles by the nonce of the record that was moved, as Acquire does. If
// that is gone with its session, too little is known: whether it was moved, and
// under which token.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if ctx.Err() != nil {
		return s.inner.Transfer(ctx, moves)
	}
	enders, asks := make([]*ender, len(moves)), make([]*ask, len(moves))
	var targets []store.SessionID
	closed := make([]bool, len(moves)) // the session that move i is to was closed before
	for i, m := range moves {
		closed[i] = s.ledger.closed(m.To.Session)
		enders[i] = s.ledger.ender(m.Held)
		asks[i] = s.ledger.ask(askKey{m.Name, m.To.Session, m.To.Nonce}, 0)
		targets = append(targets, m.To.Session)
	}
	var outs []store.Outcome
	failed := false
	err := s.repeat(ctx, func(ctx context.Context) error {
		if err := s.bury(ctx, targets...); err != nil {
			return err
		}
		var err error
		if outs, err = s.inner.Transfer(ctx, moves); !answers(err) {
			failed = true
			for _, a := range asks {
				s.ledger.lost(a)
			}
		}
		return err
	})
	if err == nil {
		err = s.toGhosts(ctx, moves, outs, closed)
	}
	if err != nil || len(outs) != len(moves) {
		for _, e := range enders {
			s.ledger.set(e, silent)
		}
		return outs, err
	}
	evident := false
	open := make([]*ender, len(moves))
	for i, m := range moves {
		out := &outs[i]
		if !out.OK {
			if rec, ok := s.ledger.landed(asks[i], out.Record); ok {
				*out, evident = store.Outcome{OK: true, Record: rec}, true
			}
		}
		switch {
		case out.OK:
			s.ledger.set(enders[i], applied)
			s.ledger.answered(asks[i], out.Record)
			continue
		case out.Err != nil || !failed || !s.ledger.mayBeGone(m.To.Session):
			s.ledger.set(enders[i], refused) // it stands, or else what it was moved to would
			s.ledger.answered(asks[i], store.Record{})
		default:
			open[i] = enders[i]
		}
		if r := out.Record; r.Token != 0 && !s.ledger.show(r) {
			out.Record = store.Record{}
		}
	}
	s.ledger.tally.add(evident, false)
	var moved error
	err = s.decide(ctx, open, func(i int) {
		moved = fmt.Errorf("%+v was moved, and is gone: %w", open[i].held, ErrUnsettled)
	}, func(i int) {
		s.ledger.answered(asks[i], store.Record{})
	})
	return outs, errors.Join(err, moved)
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func pick[T any](from []T, which []int) []T {
	picked := make([]T, len(which))
	for j, i := range which {
		picked[j] = from[i]
	}
	return picked
}
