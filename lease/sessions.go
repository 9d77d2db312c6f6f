package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// window is how far a session may be trusted: while both clocks are below.
type window struct {
	mono time.Duration
	wall int64
}

func (w *window) holds(r store.Reading) bool { return r.Mono < w.mono && r.Wall < w.wall }

// closedWindow marks a session that is over; nothing reopens it.
var closedWindow = &window{mono: math.MinInt64, wall: math.MinInt64}

// session is the Keeper's side of a Session. It lives once: a session that is
// over by the holder's clock stays over, whatever a late reply says.
type session struct {
	store.Session
	clock store.Clock
	kick  func() // tells the Keeper that the window was found closed
	pool  *pool

	window   atomic.Pointer[window]
	renewals atomic.Int64 // that extended it, for TermInfo
	activity activity     // of its lease, with RenewOnActivity

	// Guarded by Keeper.mu.
	handles  map[*Handle]struct{} // whose records are claimed under it
	held     int                  // of those, with a term that nothing has ended
	pending  int                  // operations and offers that count on it
	renewAt  time.Duration        // by the policy, or again after a failure
	renewing bool
	trouble
	wanted   time.Duration // when a renewal was asked for, last; not yet had if after renewed
	slowest  time.Duration // that renewals took of late
	answered chan struct{} // for those that wait; nil: none does
	renewed  time.Duration // when the latest request that extended it was sent
	idleAt   time.Duration // since when nothing counts on it
	dead     bool          // its terms have been ended; off the pool
	littered time.Duration // until then more may land under it than is kept by name
}

// trouble is what a session has with its renewals.
type trouble struct {
	failures int   // in a row
	failure  error // the last of them
}

// trusts reports whether r lies within the window. The first look beyond it
// closes the window for good, so that no reader sees true after another saw
// false, even if a renewal's reply is being taken up at the same moment.
func (s *session) trusts(r store.Reading) bool {
	for {
		w := s.window.Load()
		if w.holds(r) {
			return true
		}
		if w == closedWindow {
			return false
		}
		if s.window.CompareAndSwap(w, closedWindow) {
			s.kick()
			return false
		}
	}
}

// extend moves the deadline to trust from sent on, unless the present one has
// passed; it reports whether the session still lives. It is not for a renewal that
// one sent later has overtaken: what that says of the deadline is past.
func (s *session) extend(sent store.Reading, trust time.Duration) bool {
	next := &window{mono: sent.Mono + trust, wall: sent.Wall + int64(trust)}
	for {
		now := s.clock.Now()
		w := s.window.Load()
		if !s.trusts(now) || !next.holds(now) {
			s.close()
			return false
		}
		if w.mono >= next.mono || s.window.CompareAndSwap(w, next) {
			return true
		}
	}
}

// wallSlack is how far the wall deadline may lie beyond the monotonic one before
// it is brought back: more than slewing makes, far less than any margin.
const wallSlack = 10 * time.Millisecond

// rewind follows a wall clock that was stepped back: its deadline is never
// further off than the monotonic one, or a sleep as long as the step would go
// unnoticed.
func (s *session) rewind(now store.Reading) {
	w := s.window.Load()
	if w == closedWindow {
		return
	}
	if left := w.mono - now.Mono; time.Duration(w.wall-now.Wall) > left+wallSlack {
		s.window.CompareAndSwap(w, &window{mono: w.mono, wall: now.Wall + int64(left)})
	}
}

// close ends all trust in the session.
func (s *session) close() { s.window.Store(closedWindow) }

// remaining is the time until the deadline; not positive when it is over.
func (s *session) remaining(now store.Reading) time.Duration {
	w := s.window.Load()
	if w == closedWindow {
		return 0
	}
	return min(w.mono-now.Mono, time.Duration(w.wall-now.Wall))
}

func (s *session) names() int { return len(s.handles) + s.pending }

// sessions are those of a Keeper.
type sessions struct {
	*Keeper
	all     map[store.SessionID]*session
	bygone  map[store.SessionID]*session // ended here, but not seen to be gone from the store
	pools   map[sharing]*pool            // shared sessions by TTL and policy
	granted time.Duration                // the TTL of the default pool, by the store; 0: not known
	slowest time.Duration                // that renewals of the session renewed last took of late
}

// pool is the sessions of one TTL and policy that leases share; or one lease's own.
type pool struct {
	sharing
	own      bool
	handles  int           // open ones
	granted  time.Duration // by the store, last
	sessions []*session    // live ones
	opening  *opening      // one session at a time is opened
	lane     lane
}

// opening is a session being opened; all its waiters share its outcome.
type opening struct {
	done chan struct{}
	err  error // set before done is closed
}

// sharing is what leases that share sessions have in common.
type sharing struct {
	ttl     time.Duration
	renewal Renewal
}

func (k *sessions) poolLocked(of sharing) *pool {
	p := k.pools[of]
	if p == nil {
		p = k.newPool(of, false)
		k.pools[of] = p
	}
	return p
}

func (k *sessions) newPool(of sharing, own bool) *pool {
	p := &pool{sharing: of, own: own}
	p.lane.send = func(ops []*op) { k.ops.sendAcquires(p, ops) }
	return p
}

// dropPoolLocked forgets a pool that nothing needs: or as many would be kept as there were ever
// TTLs and policies.
func (k *sessions) dropPoolLocked(p *pool) {
	if p.handles == 0 && len(p.sessions) == 0 && p.opening == nil && k.pools[p.sharing] == p {
		delete(k.pools, p.sharing)
	}
}

// reserve returns a live session of p with room for at least one more name and
// enough time left, counting one as pending: opened or renewed for that if need
// be, in two requests at the most. The caller undoes the count with
// unreserveLocked. A session that is opened bears the values of caller.
func (k *sessions) reserve(caller context.Context, p *pool) (*session, error) {
	for {
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return nil, ErrClosed
		}
		if s := k.roomLocked(p); s != nil {
			s.pending++
			fresh := s.remaining(k.clock.Now()) >= k.cfg.renewEvery(s.TTL)
			k.mu.Unlock()
			if fresh {
				return s, nil
			}
			// Attaching a name renews nothing, so renew first if little is left.
			k.renew([]*session{s})
			if s.trusts(k.clock.Now()) {
				return s, nil
			}
			k.mu.Lock()
			k.unreserveLocked(s)
			k.mu.Unlock()
			continue
		}
		if o := p.opening; o != nil {
			k.mu.Unlock()
			if <-o.done; o.err != nil {
				return nil, o.err
			}
			continue
		}
		o := &opening{done: make(chan struct{})}
		p.opening = o
		k.mu.Unlock()
		s, err := k.open(caller, p)
		k.mu.Lock()
		p.opening, o.err = nil, err
		close(o.done)
		k.dropPoolLocked(p) // if it was for no handle
		k.mu.Unlock()
		return s, err
	}
}

// roomLocked finds the fullest session of p that has room. A term that is not renewed by itself
// has one of its own from its beginning: what is left of another's, it would end with.
func (k *sessions) roomLocked(p *pool) *session {
	if !p.renewal.Automatic() {
		return nil
	}
	var best *session
	now := k.clock.Now()
	for _, s := range p.sessions {
		if s.names() < k.cfg.NamesPerSession && s.trusts(now) && (best == nil || s.names() > best.names()) {
			best = s
		}
	}
	return best
}

func (k *sessions) unreserveLocked(s *session) {
	s.pending--
	k.idleLocked(s)
}

func (k *sessions) idleLocked(s *session) {
	if s.names() == 0 {
		s.idleAt = k.clock.Now().Mono
		k.kick()
	}
}

// open opens a session, with one name counted as pending; its deadline counts
// from before the request.
func (k *sessions) open(caller context.Context, p *pool) (*session, error) {
	s := &session{
		Session: store.Session{ID: store.SessionID(newID()), Owner: k.owner, TTL: p.ttl},
		clock:   k.clock, kick: k.kick, pool: p, handles: map[*Handle]struct{}{}, pending: 1,
		littered: math.MinInt64, wanted: math.MinInt64, // a clock may be below zero
	}
	sent := k.clock.Now()
	g, err := callWithin(k.Keeper, k.cfg.attempt(p.ttl), func(ctx context.Context) (store.Grant, error) {
		return k.store.OpenSession(bear(ctx, caller), s.Session)
	})
	if err == nil {
		err = g.Err
	}
	k.reach.heard(ofSessions, sent, err)
	if err != nil {
		return nil, err // if it was opened all the same, it is empty and expires
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.TTL > 0 {
		s.TTL = g.TTL
	}
	k.grantedLocked(p, s.TTL)
	trust := k.cfg.window(s.TTL)
	s.window.Store(&window{mono: sent.Mono + trust, wall: sent.Wall + int64(trust)})
	now := k.clock.Now()
	if trust <= 0 || !s.trusts(now) {
		s.close()
		return nil, errors.New("the session's answer came after its deadline")
	}
	s.slowest = k.slowest
	k.tookLocked(s, now.Mono-sent.Mono)
	s.renewAt = sent.Mono + k.renewIn(s)
	s.idleAt, s.renewed = sent.Mono, sent.Mono
	k.all[s.ID] = s
	p.sessions = append(p.sessions, s)
	k.log.Debug("session opened", zap.Int64("session", int64(s.ID)), zap.Duration("ttl", s.TTL))
	k.kick()
	return s, nil
}

// tick ends those that are over, renews those that are due and closes
// those that nothing counts on.
func (k *sessions) tick(now store.Reading, soon func(time.Duration)) {
	var due []*session
	for _, s := range k.all {
		if !s.trusts(now) {
			k.endLocked(s, ErrExpired)
			continue
		}
		s.rewind(now)
		if s.names() == 0 && !s.renewing {
			over := s.idleAt
			if s.pool.renewal.Automatic() { // or no other term is to have it
				over += s.TTL
			}
			if now.Mono >= over {
				k.closeLocked(s)
				continue
			}
			soon(over)
		}
		if !s.renewing {
			if at := s.dueLocked(now); now.Mono >= at {
				s.renewing = true
				due = append(due, s)
			} else if at < never {
				soon(at)
			}
		}
		soon(now.Mono + s.remaining(now))
	}
	k.renewDue(due)
}

// endLocked takes a session that is over off the Keeper: every term under
// it is lost. It is not renewed any more, though claims may stand until the
// store expires it.
func (k *sessions) endLocked(s *session, reason error) {
	if s.dead {
		return
	}
	if !s.trusts(k.clock.Now()) {
		reason = ErrExpired // before anybody said anything else
	}
	if reason == ErrExpired {
		reason = s.expiryLocked()
	}
	s.close()
	s.dead = true
	s.tellAnsweredLocked()
	delete(k.all, s.ID)
	// Nothing is under way to one that was left to its end.
	if k.limits.BySession && !errors.Is(reason, ErrRecordGone) && !errors.Is(reason, ErrLapsed) {
		k.bygone[s.ID] = s
	}
	for i, x := range s.pool.sessions {
		if x == s {
			s.pool.sessions = append(s.pool.sessions[:i], s.pool.sessions[i+1:]...)
			break
		}
	}
	k.dropPoolLocked(s.pool)
	for h := range s.handles {
		k.loseLocked(h, reason)
	}
}

// closeLocked gives an empty session back.
func (k *sessions) closeLocked(s *session) {
	k.endLocked(s, ErrExpired)
	k.wg.Go(func() {
		_, err := call(k.Keeper, func(ctx context.Context) (struct{}, error) { return struct{}{}, k.store.CloseSession(ctx, s.Session) })
		if err != nil {
			k.log.Debug("an empty session is left to expire", zap.Int64("session", int64(s.ID)), zap.Error(err))
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.bygone, s.ID)
	})
}

// renewDue renews sessions marked as renewing: a batch that hangs holds up no
// other. A batch is of one TTL, so that each is given as long as its TTL allows, and its policy.
func (k *sessions) renewDue(due []*session) {
	type likeness struct{ ttl, limit time.Duration }
	alike := map[likeness][]*session{}
	for _, s := range due {
		as := likeness{s.TTL, k.attemptLocked(s)}
		alike[as] = append(alike[as], s)
	}
	for _, ss := range alike {
		for batch := range slices.Chunk(ss, k.batch()) {
			k.wg.Go(func() { k.renew(batch) })
		}
	}
}

// renew asks the store to extend sessions and takes up each answer. A failure
// is no loss: it is retried, soon and then less often, until the deadline.
func (k *sessions) renew(ss []*session) {
	asked := make([]store.Session, len(ss))
	k.mu.Lock()
	limit := k.attemptLocked(ss[0]) // they are alike
	for i, s := range ss {
		asked[i] = s.Session
	}
	k.mu.Unlock()
	sent := k.clock.Now() // before the request, whatever the reply takes
	grants, err := callWithin(k.Keeper, limit, func(ctx context.Context) ([]store.Grant, error) { return k.store.Renew(ctx, asked) })
	if err == nil && len(grants) != len(ss) {
		err = errors.New("the store answered with a wrong number of grants")
	}
	k.reach.heard(ofSessions, sent, heardOf(grants, err))
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.kick()
	for i, s := range ss {
		s.renewing = false
		if s.dead {
			continue
		}
		s.tellAnsweredLocked()
		now := k.clock.Now()
		left := s.remaining(now)
		g := store.Grant{Err: err}
		if err == nil {
			g = grants[i]
		}
		switch {
		case errors.Is(g.Err, store.ErrSessionGone):
			k.meter.renewed("gone", left)
			k.endLocked(s, ErrRecordGone)
		case sent.Mono < s.renewed:
			// One that was sent later is confirmed already. However late this answer
			// is, and be it an error, it says nothing new.
			k.meter.renewed("overtaken", left)
		case g.Err != nil:
			s.failures++
			s.failure = g.Err
			if took := now.Mono - sent.Mono; took >= limit {
				k.tookLocked(s, took)
			}
			k.meter.renewed("error", left)
			if s.failures == 1 {
				k.reach.asideLocked("renewal failed, trying again until the deadline", zap.Int64("session", int64(s.ID)),
					zap.Int("leases", len(s.handles)), zap.Duration("left", left), zap.Error(g.Err))
			}
			pause := k.cfg.repeatIn(s.TTL, s.failures)
			if errors.Is(g.Err, ErrDenied) {
				pause = max(pause, min(k.cfg.repeatIn(s.TTL, slowly), left/2)) // once more at least
			}
			s.renewAt = now.Mono + time.Duration(float64(pause)*(0.5+mrand.Float64()/2))
		default:
			s.failures, s.failure, s.renewed = 0, nil, sent.Mono
			k.tookLocked(s, now.Mono-sent.Mono)
			if g.TTL > 0 {
				s.TTL = g.TTL
			}
			k.meter.renewed("ok", left)
			if !s.extend(sent, k.cfg.window(s.TTL)) {
				k.endLocked(s, ErrExpired) // the reply came too late
				continue
			}
			s.renewals.Add(1)
			s.renewAt = sent.Mono + k.renewIn(s)
		}
	}
}

// What follows renews leases at their owners' wish.

// Renewal returns the policy that the lease was made with.
func (h *Handle) Renewal() Renewal {
	if h.k == nil {
		return Renewal{}
	}
	return h.pool.renewal
}

// Renew asks the store to extend the present term's session, and returns once that is so: from then
// on it is trusted for a trust window from a moment after the call began. It is for RenewByHand;
// with the others it does no harm, and all leases of the session are renewed with this one. Calls
// of the same moment for one session share a request.
//
// It tries on, after pauses that grow, until ctx ends, OperationTimeout has passed or the term
// ends. With the end of ctx and with OperationTimeout the error is ErrUnknown, and what was asked
// for goes on in the background until the deadline. Other errors: ErrNotHeld if there is no living
// term, why the term ended meanwhile (the reasons of Loss, ErrReleased, ErrTransferred), ErrDenied,
// ErrClosed, and ErrInvalid with RenewNever: such a lease ends on time. None of them ends the term.
func (h *Handle) Renew(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	if err := h.renew(ctx); err != nil {
		return h.k.errorf(h.name, err)
	}
	return nil
}

func (h *Handle) renew(ctx context.Context) error {
	k := h.k
	if h.pool.renewal.way == notAtAll {
		return fmt.Errorf("lease.Handle.Renew: %w: made with RenewNever, must be another policy", ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t := h.current.Load()
	if t == nil || !t.CheckAlive() {
		return notHeld(h)
	}
	over := t.Context() // made without the lock
	late := make(chan struct{})
	defer k.clock.AfterFunc(k.cfg.OperationTimeout, func() { close(late) }).Stop()

	k.mu.Lock()
	defer k.mu.Unlock()
	s, asked := t.sess, k.clock.Now().Mono
	s.wanted = max(s.wanted, asked)
	k.kick()
	for s.renewed < asked {
		answered := s.answeredLocked()
		why := fmt.Errorf("no definite answer within %v", k.cfg.OperationTimeout)
		k.mu.Unlock()
		select {
		case <-answered:
			why = nil
		case <-over.Done():
			why = nil
		case <-late:
		case <-ctx.Done():
			why = ctx.Err()
		}
		k.mu.Lock()
		switch {
		case s.renewed >= asked:
		case over.Err() != nil:
			return context.Cause(over)
		case why == nil && s.failures > 0 && errors.Is(s.failure, ErrDenied):
			return s.failure
		case why != nil && s.failures > 0:
			return fmt.Errorf("%w, the last attempt: %w", unknown(why), s.failure)
		case why != nil:
			return unknown(why)
		}
	}
	if !t.CheckAlive() { // the Keeper sees it, and says why
		k.mu.Unlock()
		defer k.mu.Lock()
		select {
		case <-over.Done():
			return context.Cause(over)
		case <-k.ctx.Done():
			return ErrClosed
		}
	}
	return nil
}

// ShouldRenew reports whether the lease is held, and this fraction of its trust window or more has
// passed since a renewal was sent that the store confirmed: whether it is time to call Renew, for
// RenewByHand. It asks nothing of the store.
func (h *Handle) ShouldRenew(fraction float64) bool {
	t := h.current.Load()
	if t == nil || !t.CheckAlive() {
		return false
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return float64(t.sess.remaining(h.k.clock.Now())) <= (1-fraction)*float64(h.k.cfg.window(t.sess.TTL))
}

func notHeld(h *Handle) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.k.closing || h.closed {
		return ErrClosed
	}
	return ErrNotHeld
}

// Touch says that the lease is in use. With RenewOnActivity that keeps it; with other policies, and
// while it is not held, it does nothing. It takes no lock and allocates nothing.
func (h *Handle) Touch() {
	t := h.current.Load()
	if t == nil || t.sess.activity.Load() == touched || !t.CheckAlive() { // after its end it is of no use
		return
	}
	if t.sess.activity.Swap(touched) == wanted {
		h.k.kick()
	}
}

// activity tells a session's loop that its lease is in use.
type activity struct{ atomic.Int32 }

const (
	quiet   int32 = iota
	touched       // since the last renewal was due
	wanted        // a renewal is due, and begins with the next touch, which kicks the loop
)

// take reports whether there was a touch since it was called last. If there was none, the next is
// wanted.
func (a *activity) take() bool {
	for {
		now := a.Load()
		next := wanted
		if now == touched {
			next = quiet
		}
		if a.CompareAndSwap(now, next) {
			return now == touched
		}
	}
}

// answeredLocked is closed when the next renewal of s is answered, or fails.
func (s *session) answeredLocked() <-chan struct{} {
	if s.answered == nil {
		s.answered = make(chan struct{})
	}
	return s.answered
}

func (s *session) tellAnsweredLocked() {
	if s.answered != nil {
		close(s.answered)
		s.answered = nil
	}
}
