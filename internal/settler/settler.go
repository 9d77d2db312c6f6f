// Package settler is a careful client of a store, for kits that run while its servers are disturbed
// (storetest.Disturbed): it repeats requests that got no answer, and tells one definite outcome of
// them all.
package settler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
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

// What a settler does to read is repeated; what landed late is left out.

func (s *Store) Get(ctx context.Context, names ...string) (recs []store.Record, err error) {
	tops := s.ledger.tops(names)
	err = s.repeat(ctx, func(ctx context.Context) error {
		recs, err = s.inner.Get(ctx, names...)
		return err
	})
	if err != nil {
		return nil, err
	}
	recs = slices.DeleteFunc(recs, func(r store.Record) bool { return !s.ledger.show(r) })
	for i, name := range names {
		if !slices.ContainsFunc(recs, func(r store.Record) bool { return r.Name == name }) {
			s.ledger.free(name, tops[i])
		}
	}
	return recs, nil
}

// listed is one value of a List.
type listed struct {
	rec store.Record
	err error
}

func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		var all []listed
		err := s.repeat(ctx, func(ctx context.Context) error {
			all = nil
			for rec, err := range s.inner.List(ctx, q) {
				if err != nil && !errors.Is(err, store.ErrBadRecord) {
					return err
				}
				all = append(all, listed{rec, err})
			}
			return nil
		})
		for _, one := range all {
			if ctx.Err() != nil {
				err = ctx.Err()
				break
			}
			if one.err == nil && !s.ledger.show(one.rec) {
				continue
			}
			if !yield(one.rec, one.err) {
				return
			}
		}
		if err != nil {
			yield(store.Record{}, err)
		}
	}
}

// Watch repeats what comes before EventSynced. What ends the watch later ends it
// for the caller too: another would leave out what happened between the two.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for {
			synced, err := s.watchOnce(ctx, of, yield)
			if err == nil {
				return // the caller has enough
			}
			if !synced && ctx.Err() == nil && !answers(err) {
				s.ledger.tally.Failed.Add(1)
				select {
				case <-time.After(s.patience.Pause):
				case <-ctx.Done():
				}
				continue
			}
			yield(store.Event{}, err)
			return
		}
	}
}

// watchOnce yields what one watch tells, if it comes as far as EventSynced, and
// returns how it ended; nil if yield did not want more.
func (s *Store) watchOnce(ctx context.Context, of store.Scope, yield func(store.Event, error) bool) (synced bool, err error) {
	var snapshot []store.Event
	hidden := map[string]bool{} // what stands landed after its caller had left
	all := of
	all.Deletions = false // a deletion is passed on only if the caller was shown the record
	for ev, err := range s.inner.Watch(ctx, all) {
		if err != nil {
			return synced, err
		}
		name := ev.Record.Name
		switch ev.Kind {
		case store.EventPut:
			hidden[name] = !s.ledger.show(ev.Record)
			if hidden[name] || of.Deletions {
				continue
			}
		case store.EventDelete:
			if hidden[name] {
				hidden[name] = false
				continue
			}
		}
		snapshot = append(snapshot, ev)
		if synced = synced || ev.Kind == store.EventSynced; !synced {
			continue
		}
		for _, ev := range snapshot {
			if !yield(ev, nil) {
				return true, nil
			}
		}
		snapshot = nil
	}
	return true, nil // it ended without a word, and so the caller's does
}

// Opening, renewing and closing may be repeated as they are. But an opening that
// lands after the session was closed reopens it: it is closed again before
// anything is asked of it.

func (s *Store) OpenSession(ctx context.Context, want store.Session) (g store.Grant, err error) {
	if ctx.Err() != nil {
		return s.inner.OpenSession(ctx, want)
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		sent := time.Now()
		g, err = s.inner.OpenSession(ctx, want)
		s.ledger.opened(want, sent, g.TTL, answers(err))
		return err
	})
	return g, err
}

func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	if ctx.Err() != nil {
		return s.inner.CloseSession(ctx, want)
	}
	s.ledger.closing(want.ID, false)
	err := s.repeat(ctx, func(ctx context.Context) error { return s.inner.CloseSession(ctx, want) })
	if err == nil {
		s.ledger.closing(want.ID, true)
	}
	return err
}

// bury closes sessions that may have been opened again by a request that landed
// after they were closed.
func (s *Store) bury(ctx context.Context, ids ...store.SessionID) error {
	for _, id := range ids {
		if sess, yes := s.ledger.haunted(id); yes {
			if err := s.inner.CloseSession(ctx, sess); err != nil {
				return err
			}
		}
	}
	return nil
}

// toGhosts buries what moves were answered to have been moved to: sessions that
// are closed, and may have come back. What was moved goes with them. If the session was
// closed before the move began, no answer to a move says that; if it was closed
// meanwhile, it was closed after the move.
func (s *Store) toGhosts(ctx context.Context, moves []store.Transfer, outs []store.Outcome, closed []bool) error {
	for i, out := range outs {
		to := moves[i].To.Session
		if _, yes := s.ledger.haunted(to); !yes || !out.OK {
			continue
		}
		if err := s.repeat(ctx, func(ctx context.Context) error { return s.bury(ctx, to) }); err != nil {
			return err
		}
		if closed[i] {
			return fmt.Errorf("%+v was moved to a session that was closed: %w", moves[i].Held, ErrUnsettled)
		}
	}
	return nil
}

func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	grants := make([]store.Grant, len(sessions))
	left := upTo(len(sessions))
	err := s.repeat(ctx, func(ctx context.Context) error {
		sent := time.Now()
		part := pick(sessions, left)
		ids := make([]store.SessionID, len(part))
		for i, p := range part {
			ids[i] = p.ID
		}
		if err := s.bury(ctx, ids...); err != nil {
			return err
		}
		got, err := s.inner.Renew(ctx, part)
		if err != nil {
			return err
		}
		if len(got) != len(part) {
			grants = got
			return nil
		}
		var failed error
		var again []int
		for j, i := range left {
			switch grants[i] = got[j]; {
			case !answers(got[j].Err):
				failed = got[j].Err
				again = append(again, i)
			case got[j].Err != nil:
			default:
				s.ledger.opened(part[j], sent, got[j].TTL, true)
				if _, yes := s.ledger.haunted(ids[j]); yes { // since it was looked for
					failed = cmp.Or(failed, errMore)
					again = append(again, i)
				}
			}
		}
		left = again
		return failed
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Ledger is what the clients of one store know together, and so what may be
// concluded when a request got no answer. Everything a caller was told is in it.
//
// A record can prove that a request was applied: it bears the nonce of the claim
// or the transfer, and a later write met it, or somebody was shown it. That there
// is none proves nothing, as the request may land later; so it is repeated until
// a write is answered. A release leaves no record: see decide.
//
// A claim that lands when its caller has been answered is not what anybody was
// told: its record is hidden from readers, and removed when it is in another
// claim's way, as a Keeper does with its own records that no handle claims. No more
// of these are taken for such than requests got no answer.
type Ledger struct {
	mu       sync.Mutex
	asks     map[askKey]*ask
	names    map[string]*standing
	enders   map[store.Held][]*ender // releases and transfers, in the order in which they began
	sessions map[store.SessionID]*sitting
	changed  chan struct{} // closed and replaced when an ender's state changes
	tally    *Tally
}

// NewLedger makes an empty one that counts in t.
func NewLedger(t *Tally) *Ledger {
	return &Ledger{asks: map[askKey]*ask{}, names: map[string]*standing{}, enders: map[store.Held][]*ender{},
		sessions: map[store.SessionID]*sitting{}, changed: make(chan struct{}), tally: t}
}

type askKey struct {
	name    string
	session store.SessionID
	nonce   uint64
}

// ask is all requests that put a record with one nonce under one name.
type ask struct {
	key    askKey
	open   int                  // calls that have not told their caller an outcome
	astray int                  // requests without an answer that may have landed, or may yet
	mine   map[store.Token]bool // what callers were told is theirs
	late   map[store.Token]bool // what landed after its caller had left
	shown  store.Record         // what somebody was shown while a call was open
}

// standing is what is known to stand under a name, or to have stood.
type standing struct {
	top    store.Record // the newest record that anybody was told of
	over   store.Token  // ownerships up to this token are over
	rivals map[store.Token]bool
}

// sitting is a session.
type sitting struct {
	store.Session
	closing, closed bool
	astray          int // openings without an answer, that may land yet
	sent            time.Time
	ttl             time.Duration
}

func (l *Ledger) name(name string) *standing {
	n := l.names[name]
	if n == nil {
		n = &standing{rivals: map[store.Token]bool{}}
		l.names[name] = n
	}
	return n
}

func (l *Ledger) session(id store.SessionID) *sitting {
	s := l.sessions[id]
	if s == nil {
		s = &sitting{}
		l.sessions[id] = s
	}
	return s
}

// ask begins a call that puts a record; over is the token it supersedes, or 0.
func (l *Ledger) ask(key askKey, over store.Token) *ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[key]
	if a == nil {
		a = &ask{key: key, mine: map[store.Token]bool{}, late: map[store.Token]bool{}}
		l.asks[key] = a
	}
	a.open++
	if over != 0 {
		l.name(key.name).rivals[over] = true
	}
	return a
}

// lost: a request of the ask got no answer.
func (l *Ledger) lost(a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.astray++
}

// answered ends a call: its caller gets rec as its own, or, if rec is
// zero, that nothing is.
func (l *Ledger) answered(a *ask, rec store.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.open--
	a.shown = store.Record{}
	if rec.Token != 0 {
		a.mine[rec.Token] = true
		l.note(rec)
	}
}

// landed tells whether a request of a, an earlier one of this call's, is known to
// have been applied: the record that a later one met is of its making, or one
// that somebody was shown.
func (l *Ledger) landed(a *ask, met store.Record) (store.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (askKey{met.Name, met.Session, met.Nonce}) != a.key || a.mine[met.Token] {
		met = a.shown
	}
	if a.astray == 0 || met.Token == 0 || a.mine[met.Token] {
		return store.Record{}, false
	}
	a.astray--
	return met, true
}

// show tells whether a reader, or who was refused, may be told of rec; false if it
// landed after its caller had left.
func (l *Ledger) show(rec store.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[askKey{rec.Name, rec.Session, rec.Nonce}]
	switch {
	case a == nil || a.mine[rec.Token]:
	case a.late[rec.Token]:
		return false
	case a.open > 0:
		a.shown = rec
	case a.astray > 0:
		a.astray--
		a.late[rec.Token] = true
		l.tally.Late.Add(1)
		return false
	}
	l.note(rec)
	return true
}

func (l *Ledger) note(rec store.Record) {
	if n := l.name(rec.Name); rec.Token > n.top.Token {
		n.top = rec
	}
}

// tops are the newest tokens known of names, before they are read.
func (l *Ledger) tops(names []string) []store.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	tops := make([]store.Token, len(names))
	for i, name := range names {
		tops[i] = l.name(name).top.Token
	}
	return tops
}

// free: nothing that was known before stands under name.
func (l *Ledger) free(name string, top store.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.name(name)
	n.over = max(n.over, top)
}

// ender is a call that ends an ownership, if it stands: a release, or a transfer.
//
//	flying ──answer──▶ applied, refused
//	   │ ──an earlier attempt got none, and the ownership is gone──▶ stuck ──decide──▶ applied, refused, silent
//	   └── the caller's time is over ──▶ silent
type ender struct {
	held    store.Held
	stood   bool            // known to, when the call began
	session store.SessionID // of what stood
	state   enderState
}

type enderState uint8

const (
	flying enderState = iota
	stuck
	applied
	refused
	silent // its caller was told that nothing is known
)

func (l *Ledger) ender(h store.Held) *ender {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.name(h.Name)
	e := &ender{held: h, stood: n.top.Held() == h && h.Token > n.over, session: n.top.Session}
	l.enders[h] = append(l.enders[h], e)
	return e
}

func (l *Ledger) set(e *ender, s enderState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(e, s)
}

func (l *Ledger) setLocked(e *ender, s enderState) {
	e.state = s
	if s == applied {
		n := l.name(e.held.Name)
		n.over = max(n.over, e.held.Token)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// stick: e got no answer at first, and then the answer that the ownership does
// not stand.
func (l *Ledger) stick(e *ender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !e.stood {
		l.setLocked(e, refused) // it was over before
		return
	}
	l.setLocked(e, stuck)
}

// decide settles a call that is stuck. If nothing but such calls can have ended
// the ownership, one of them did. If there are several, all in flight, then no one
// can tell which: the one that began first was in flight whenever it was. So it
// counts as the one. In every other case nothing is known.
func (l *Ledger) decide(ctx context.Context, e *ender) enderState {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e.state == stuck {
		var first *ender
		var done, lost, wait bool
		for _, o := range l.enders[e.held] {
			done, lost, wait = done || o.state == applied, lost || o.state == silent, wait || o.state == flying
			if o.state == stuck && first == nil {
				first = o
			}
		}
		switch {
		case done:
			l.setLocked(e, refused)
		case lost || ctx.Err() != nil || l.mayBeOver(e):
			l.setLocked(e, silent)
		case !wait && first == e:
			l.setLocked(e, applied)
		default:
			changed := l.changed
			l.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			l.mu.Lock()
		}
	}
	return e.state
}

// mayBeOver tells whether an ownership may have ended by other means than its
// enders: its session's end, or a claim that supersedes it.
func (l *Ledger) mayBeOver(e *ender) bool {
	return l.name(e.held.Name).rivals[e.held.Token] || l.session(e.session).mayBeGone()
}

// mayBeGone tells whether a session may be over.
func (l *Ledger) mayBeGone(id store.SessionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(id).mayBeGone()
}

func (s *sitting) mayBeGone() bool { return s.closing || time.Since(s.sent) >= s.ttl }

// opened: a request to open or renew a session was answered, or not.
func (l *Ledger) opened(which store.Session, sent time.Time, ttl time.Duration, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(which.ID)
	s.Session = which
	if !answered {
		s.astray++
		return
	}
	s.sent, s.ttl = sent, ttl
}

// closing: a session is being closed, or was.
func (l *Ledger) closing(id store.SessionID, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(id)
	s.closing, s.closed = true, done
}

// closed tells whether a session is known to have been closed.
func (l *Ledger) closed(id store.SessionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(id).closed
}

// haunted tells whether a request to open a session may have landed after the
// session was closed.
func (l *Ledger) haunted(id store.SessionID) (store.Session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(id)
	return s.Session, s.closed && s.astray > 0
}
