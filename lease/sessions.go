package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/store"
)

// SessionInfo is a session of a Keeper.
type SessionInfo struct {
	ID     store.SessionID
	Leases int // that are held under it
	TTL    time.Duration
	Left   time.Duration // for which it is trusted
	Failed int           // renewals in a row
	Err    error         // the last of them; nil if Failed is 0
}

// Answers is how a store answered requests to renew.
type Answers struct {
	P50, P99 time.Duration // of those answered; zero if none was
	Failed   int           // requests
	Attempt  time.Duration // for which an answer is waited (Config.AttemptTimeout)
}

// sessions are those of a Keeper.
type sessions struct {
	*names
	all     map[store.SessionID]*session
	bygone  map[store.SessionID]*session // ended here, but not seen to be gone from the store
	pools   map[sharing]*pool            // shared sessions by TTL and policy
	granted time.Duration                // the TTL of the default pool, by the store; 0: not known
	slowest time.Duration                // that renewals of the session renewed last took of late
	answers answers                      // to renewals
}

// answers are the store's latest answers to renewals.
type answers struct {
	latest [128]struct {
		at, took time.Duration
		failed   bool
	}
	n int // in all
}

// add notes one.
func (a *answers) add(at, took time.Duration, failed bool) {
	x := &a.latest[a.n%len(a.latest)]
	x.at, x.took, x.failed = at, took, failed
	a.n++
}

// of returns what those of the last minute say.
func (a *answers) of(now time.Duration) (r Answers) {
	var took []time.Duration
	for _, x := range a.latest[:min(a.n, len(a.latest))] {
		switch {
		case now-x.at > time.Minute:
		case x.failed:
			r.Failed++
		default:
			took = append(took, x.took)
		}
	}
	if slices.Sort(took); len(took) > 0 {
		r.P50, r.P99 = took[(len(took)-1)/2], took[(len(took)*99-1)/100]
	}
	return r
}

// infoLocked describes the sessions that live.
func (k *sessions) infoLocked(now store.Reading) []SessionInfo {
	all := make([]SessionInfo, 0, len(k.all))
	for _, s := range k.all {
		if s.names() > 0 {
			all = append(all, SessionInfo{ID: s.ID, Leases: s.held, TTL: s.TTL, Left: s.remaining(now), Failed: s.failures, Err: s.failure})
		}
	}
	slices.SortFunc(all, func(a, b SessionInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// dropPoolLocked forgets a pool that no handle uses and no session is of. One that is being opened is then
// of a pool that no other handle shares.
func (k *sessions) dropPoolLocked(p *pool) {
	if p.handles == 0 && len(p.sessions) == 0 && k.pools[p.sharing] == p {
		delete(k.pools, p.sharing)
	}
}

// reserve returns a live session of p with room for at least one more name and
// enough time left, counting one as pending: opened or renewed for that if need
// be, in two requests at the most. The caller undoes the count with
// unreserveLocked. A session that is opened bears the values of caller.
func (k *sessions) reserve(caller context.Context, p *pool, want int) (*session, error) {
	for {
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return nil, ErrClosed
		}
		if s := k.roomLocked(p, want); s != nil {
			s.pending++
			fresh := s.remaining(k.clock.Now()) >= k.cfg.everyOf(Renewal{}, s.TTL)
			k.mu.Unlock()
			if !fresh { // attaching a name renews nothing, so renew first if little is left
				k.renew([]*session{s})
			}
			if fresh || s.trusts(k.clock.Now()) {
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
		k.mu.Unlock()
		return s, err
	}
}

// reserveFor is reserve for a caller that may leave: what is reserved after that is given back.
func (k *sessions) reserveFor(ctx context.Context, p *pool) (*session, error) {
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	defer k.wg.Done()
	got := make(chan reply[*session])
	k.wg.Go(func() {
		s, err := k.reserve(context.WithoutCancel(ctx), p, 1)
		select {
		case got <- reply[*session]{s, err}:
			return
		case <-ctx.Done():
		case <-k.ctx.Done():
		}
		if err == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.unreserveLocked(s)
		}
	})
	select {
	case r := <-got:
		return r.v, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.ctx.Done():
		return nil, ErrClosed
	}
}

// roomLocked finds the fullest session of p that has room for as many names as are wanted, or else the
// one with the most room: what does not fit is another request. A term that is not renewed by itself
// has one of its own from its beginning: what is left of another's, it would end with.
func (k *sessions) roomLocked(p *pool, want int) *session {
	if !p.renewal.Automatic() {
		return nil
	}
	var best *session
	now, most := k.clock.Now(), 0
	for _, s := range p.sessions {
		room := k.cfg.NamesPerSession - s.names()
		better := room > most
		if room >= want {
			better = most < want || room < most
		}
		if room > 0 && better && s.trusts(now) {
			best, most = s, room
		}
	}
	return best
}

func (k *sessions) unreserveLocked(s *session) {
	s.pending--
	s.idleLocked()
}

// open opens a session, with one name counted as pending; its deadline counts
// from before the request.
func (k *sessions) open(caller context.Context, p *pool) (*session, error) {
	s := &session{
		Session:  store.Session{ID: store.SessionID(newID()), Owner: k.owner, TTL: p.ttl},
		deadline: deadline{clock: k.clock, kick: k.kick}, pool: p, handles: map[*entry]struct{}{}, pending: 1,
		littered: math.MinInt64, wanted: math.MinInt64, // a clock may be below zero
	}
	sent := k.clock.Now()
	g, err := callWithin(caller, k.core, k.cfg.attempt(p.ttl), request{operation: "open"}, func(ctx context.Context) (store.Grant, error) {
		return k.store.OpenSession(ctx, s.Session)
	})
	err = cmp.Or(err, g.Err)
	k.reach.heard(ofSessions, sent, err)
	if err != nil {
		return nil, err // if it was opened all the same, it is empty and expires
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.TTL > 0 {
		s.TTL = g.TTL
	}
	// What fails is taken over later then. The log has that once for each.
	if s.TTL > p.ttl && s.TTL != p.granted {
		k.log.Warn("the store raised the TTL", zap.Duration("asked", p.ttl), zap.Duration("granted", s.TTL),
			boundary.Do("set lease.Config.TTL to what is granted, so that the settings say what is"))
	}
	if p.granted = s.TTL; p.ttl == k.cfg.TTL {
		k.granted = s.TTL
	}
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
	s.answered.tell()
	delete(k.all, s.ID)
	// Nothing is under way to one that was left to its end.
	if k.limits.BySession && !errors.Is(reason, ErrRecordGone) && !errors.Is(reason, ErrLapsed) {
		k.bygone[s.ID] = s
	}
	s.pool.sessions = slices.DeleteFunc(s.pool.sessions, func(x *session) bool { return x == s })
	k.dropPoolLocked(s.pool)
	for h := range s.handles {
		k.loseLocked(h, reason)
	}
}

// closeLocked gives an empty session back.
func (k *sessions) closeLocked(s *session) {
	k.endLocked(s, ErrExpired)
	k.wg.Go(func() {
		if err := k.core.closeSession(context.Background(), s.Session); err != nil {
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
	grants, err := callWithin(context.Background(), k.core, limit, request{operation: "renew", of: len(ss)}, func(ctx context.Context) ([]store.Grant, error) { return k.store.Renew(ctx, asked) })
	if err == nil && len(grants) != len(ss) {
		err = errors.New("the store answered with a wrong number of grants")
	}
	k.reach.heard(ofSessions, sent, heardOf(grants, err))
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.kick()
	now := k.clock.Now()
	took := now.Mono - sent.Mono
	k.answers.add(now.Mono, took, heardOf(grants, err) != nil)
	for i, s := range ss {
		s.renewing = false
		if s.dead {
			continue
		}
		s.answered.tell()
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
			if took >= limit {
				k.tookLocked(s, took)
			}
			k.meter.renewed("error", left)
			if s.failures == 1 {
				k.note(now, journal.Failing, fmt.Sprintf("session/%016x", uint64(s.ID)), 0, "", g.Err)
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
			k.tookLocked(s, took)
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

// renewIn is the jittered time from one renewal's sending to the next, if that is not asked for.
func (k *sessions) renewIn(s *session) time.Duration {
	r, c := s.pool.renewal, k.cfg
	if latest := never; r.way == lazily || r.way == adaptively {
		if latest = c.lazyAt(s.TTL); r.way == adaptively {
			latest = c.adaptedAt(s.TTL, s.slowest)
		}
		return time.Duration(float64(latest) * (1 - c.Jitter*mrand.Float64()))
	}
	return time.Duration(float64(c.everyOf(r, s.TTL)) * (1 + c.Jitter*(2*mrand.Float64()-1)))
}

// attemptLocked bounds the next request that renews s. The first of a policy that leaves little
// time leaves enough for another; one that comes later than it was to, as the answer before it
// was slow, leaves what it can, and is given what answers take.
func (k *sessions) attemptLocked(s *session) time.Duration {
	usual, r := k.cfg.attempt(s.TTL), s.pool.renewal
	left := s.remaining(k.clock.Now()) / 5 * 2
	switch {
	case r.way == adaptively:
		attempt := k.cfg.adaptedAttempt(s.TTL, s.slowest)
		if s.failures > 0 || k.cfg.window(s.TTL)-s.remaining(k.clock.Now()) <= k.cfg.adaptedAt(s.TTL, s.slowest) {
			return attempt
		}
		return min(attempt, max(left, s.slowest/4*5, time.Millisecond))
	case s.failures > 0:
		return usual
	case r.way == lazily:
		left = min(left, (k.cfg.window(s.TTL)-k.cfg.lazyAt(s.TTL))/5*2)
	case r.way == atFraction:
		latest := time.Duration(float64(k.cfg.everyOf(r, s.TTL)) * (1 + k.cfg.Jitter))
		left = min(left, (k.cfg.window(s.TTL)-latest)/5*2)
	default:
		return usual
	}
	return max(time.Millisecond, min(usual, left))
}

// tookLocked notes how long a renewal of s took, or that none was answered for so long. What was
// slow is forgotten slowly; the next session begins with it.
func (k *sessions) tookLocked(s *session, d time.Duration) {
	s.slowest = max(d, s.slowest-(s.slowest-d)/8)
	k.slowest = s.slowest
}

// dueLocked is when s is due for renewal, by its policy or because that was asked for; never if by
// neither.
func (s *session) dueLocked(now store.Reading) time.Duration {
	r := s.pool.renewal
	switch {
	case s.failures > 0, r.Automatic() && s.wanted <= s.renewed:
		return s.renewAt
	case s.wanted > s.renewed:
		return s.wanted
	case r.way != onActivity:
		return never
	case now.Mono < s.renewAt:
		return s.renewAt
	case s.activity.take():
		s.wanted = now.Mono
		return now.Mono
	}
	return never
}

// heldLocked returns how many terms live, and for how long the first that is to
// be renewed is still trusted if none is; and how many handles have none.
func (k *sessions) heldLocked(now store.Reading) (held int, left time.Duration, idle int) {
	for _, s := range k.all {
		if s.held == 0 || !s.trusts(now) {
			continue
		}
		if rest := s.remaining(now); s.pool.renewal.Automatic() && (left == 0 || rest < left) {
			left = rest
		}
		held += s.held
	}
	return held, left, len(k.handles) - held
}
