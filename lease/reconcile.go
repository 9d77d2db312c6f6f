package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// reconciler finds records of this incarnation that no handle claims (a late
// acquire, a transfer that was not taken up) and releases them, so that a session keeps
// no record alive that is not claimed. All fields are guarded by Keeper.mu.
type reconciler struct {
	*names
	sessions *sessions
	history  *history
	waits    *waits
	offers   *offers
	suspect  map[string]*suspicion // by name
	running  bool
	fails    int // rounds in a row
	// unlisted counts the listings in a row that came to no end.
	unlisted int
	next     time.Duration
	round    int
	noList   bool // the store said that it can't
	// behind: a watch began that had no snapshot, and no look at everything has
	// begun since and succeeded.
	behind bool
}

// fullRound: with a watch that runs, every so many rounds lists all the same.
const fullRound = 3

// claimedLocked reports whether a record of this incarnation has a handle that
// claims it, or an open offer that it was transferred to.
func (r *reconciler) claimedLocked(rec Record) bool {
	if h := r.handles[rec.Name]; h != nil && h.claim.Status != settle.Free && h.claim.Stands.Token == rec.Token {
		return true
	}
	if h := r.parting[rec.Name]; h != nil && h.op != nil && h.claim.Stands.Token == rec.Token {
		return true
	}
	o := r.offers.open[rec.Name]
	return o != nil && o.nonce == rec.Nonce
}

// wantedLocked reports whether a handle claims the record or may come to.
func (r *reconciler) wantedLocked(rec Record) bool {
	h := r.handles[rec.Name]
	return h != nil && h.op != nil || r.claimedLocked(rec)
}

// listNowLocked makes a full round due.
func (r *reconciler) listNowLocked() {
	r.behind, r.next = true, r.clock.Now().Mono
	r.kick()
}

// tick starts a round when one is due: every TTL.
func (r *reconciler) tick(now store.Reading, soon func(time.Duration)) {
	if r.running {
		return
	}
	if len(r.handles) == 0 && len(r.suspect) == 0 && len(r.sessions.all) == 0 && len(r.sessions.bygone) == 0 {
		r.next = now.Mono + r.cfg.TTL
		return
	}
	if now.Mono >= r.next {
		r.next, r.running = now.Mono+r.cfg.TTL, true
		r.round++
		full := !r.noList && (!r.watched || r.behind || r.round%fullRound == 0 || r.doubtLocked())
		behind := r.behind
		r.behind = false // one that begins meanwhile counts again
		r.wg.Go(func() { r.run(full, behind) })
	}
	soon(r.next)
}

// namesLocked returns the suspects, and those of all handles too if there is no
// listing to find out about them.
func (r *reconciler) namesLocked(handles bool) (names []string) {
	names = slices.Collect(maps.Keys(r.suspect))
	if handles {
		for name := range r.handles {
			if r.suspect[name] == nil {
				names = append(names, name)
			}
		}
	}
	return names
}

// run is a round: a look at everything, if it is to be full, or at names.
func (r *reconciler) run(full, behind bool) {
	began := r.clock.Now().Mono
	l, err := look{found: map[string]Record{}}, error(nil)
	if full {
		l, err = r.mine(behind)
	}
	all := l.found // also of a listing that came to no end
	if !full || err != nil {
		r.mu.Lock()
		if full {
			// What this Keeper knows of is looked at by name, whatever keeps a listing
			// from coming to its end.
			full = false
			r.noList = errors.Is(err, ErrUnsupported)
			if r.secondLocked(&r.unlisted) && !r.noList {
				r.reach.asideLocked("listing for reconciliation fails, looking at names instead", zap.Error(err))
			}
		}
		l = look{names: r.namesLocked(r.noList || err != nil)}
		r.mu.Unlock()
		l.found, err = r.get(context.Background(), l.names...)
		maps.Copy(all, l.found) // which was read later
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.running = false; r.kick() }()
	if err != nil {
		if r.secondLocked(&r.fails) && r.history.setback == nil { // which was logged
			r.reach.asideLocked("reconciling fails, to be repeated", zap.Error(err))
		}
		r.behind = r.behind || behind
	} else {
		r.fails = 0
		if full {
			r.unlisted = 0
		}
		r.lookedLocked(l, full, began)
	}
	var held []store.Held
	for _, rec := range all {
		if rec.Owner.Incarnation == r.owner.Incarnation && !r.wantedLocked(rec) {
			held = append(held, rec.Held())
		}
	}
	if len(held) > 0 && !r.closed {
		r.wg.Go(func() { r.release(held) })
	}
}

// secondLocked counts a failure in a row, but for those of an outage, which is logged by itself. It
// reports whether it is the second: one may be left of an outage that is over.
func (r *reconciler) secondLocked(fails *int) bool {
	if r.reach.outage.on {
		return false
	}
	*fails++
	return *fails == 2
}

// lookedLocked draws conclusions from a complete look that began at began: a
// term that was held before it and that the store does not have is lost; a name
// that no record has is free.
func (r *reconciler) lookedLocked(l look, full bool, began time.Duration) {
	check := func(h *entry) {
		rec, ok := l.found[h.name]
		if !ok || rec.Owner.Incarnation == r.owner.Incarnation {
			r.waits.freeLocked(h)
		}
		t := h.current.Load()
		if h.claim.Status != settle.Held || h.op != nil || t == nil || t.since >= began {
			return
		}
		switch {
		case !ok:
			r.loseLocked(h, ErrRecordGone)
		case r.history.readLocked(h.name, rec.Token, t.token) != nil:
		case rec.Token != t.token && rec.Owner.Incarnation != r.owner.Incarnation:
			r.loseLocked(h, ErrTakenOver)
		case rec.Token != t.token:
			r.loseLocked(h, fmt.Errorf("token %d stands for %d: %w", rec.Token, t.token, ErrInconsistent))
		}
	}
	if l.all {
		for _, h := range r.handles {
			check(h)
		}
	}
	for _, name := range l.names {
		if h := r.handles[name]; h != nil {
			check(h)
		}
		if !full {
			r.fadeLocked(name)
		}
	}
	if full {
		for name := range r.suspect {
			r.fadeLocked(name)
		}
	}
}

// release removes unclaimed records; conditional, so that one which was taken up
// meanwhile, under a newer token, stays.
func (r *reconciler) release(held []store.Held) {
	for part := range slices.Chunk(held, r.batch()) {
		outs, err := call(context.Background(), r.core, request{operation: "release", of: len(part)}, func(ctx context.Context) ([]store.Outcome, error) { return r.store.Release(ctx, part) })
		r.mu.Lock()
		for i, h := range part {
			if err != nil {
				r.suspectLocked(h.Name)
				continue
			}
			if i < len(outs) && outs[i].OK {
				r.meter.reconciled.add(1)
				r.log.Info("released a record that no lease claimed", zap.String("lease", h.Name), zap.Uint64("token", uint64(h.Token)))
			}
		}
		r.mu.Unlock()
	}
}

// What follows keeps the names that something of this Keeper's may still land under:
// a request whose outcome was never learnt. Reconciliation looks at each of them
// once per TTL.

// suspicion is for how long a name is looked at.
type suspicion struct {
	rounds int           // this many more, at least
	under  []*session    // and while one of these lives: a claim under it may land
	until  time.Duration // but no longer than this: listing finds what lands later
}

// suspectRounds is for how many rounds, one TTL each, a name stays suspect in any
// case.
const suspectRounds = 3

// lateRounds is for how many TTLs a request is taken to be under way at the most,
// as long as its session lives: else a session that lives as long as the process
// would keep every name that was ever in doubt.
const lateRounds = 60

// maxSuspects bounds the names that are looked at one by one. With more of them,
// a round lists. Where the store lists by session, a round lists with any.
const maxSuspects = 1000

// suspectLocked makes name suspect. A claim that may still be under way lands in
// vain once its session is over, and not before: under are the sessions of those.
func (r *reconciler) suspectLocked(name string, under ...*session) {
	s := r.suspect[name]
	if s == nil {
		s = &suspicion{}
		r.suspect[name] = s
	}
	s.rounds = suspectRounds
	until := r.clock.Now().Mono + lateRounds*r.cfg.TTL
	for _, x := range under {
		s.until = until
		switch {
		case x.dead || slices.Contains(s.under, x):
		case len(r.suspect) > maxSuspects:
			x.littered = until // and nothing that grows
		default:
			s.under = append(s.under, x)
		}
	}
	r.kick()
}

func (r *reconciler) suspects(name string) bool { return r.suspect[name] != nil }

// fadeLocked: name was looked at.
func (r *reconciler) fadeLocked(name string) {
	s := r.suspect[name]
	if s == nil {
		return
	}
	s.rounds--
	late := r.clock.Now().Mono >= s.until
	s.under = slices.DeleteFunc(s.under, func(x *session) bool { return x.dead || late })
	if s.rounds <= 0 && len(s.under) == 0 {
		delete(r.suspect, name)
	}
}

// doubtLocked reports whether a listing is to find what may land: of the sessions it may
// land under, or of everything if there are too many names to look at each.
func (r *reconciler) doubtLocked() bool {
	if n := len(r.suspect); n > maxSuspects || n > 0 && r.limits.BySession {
		return true
	}
	now := r.clock.Now().Mono
	for _, s := range r.sessions.all {
		if now < s.littered {
			return true
		}
	}
	return false
}

// What follows reads what is this Keeper's own: for reconciliation.

// look is what reconciliation has read.
type look struct {
	found map[string]Record
	names []string // whose records, if there are any, were found
	all   bool     // it is so of every name
}

// mine reads every record of this incarnation, and of its handles' names those that
// conclusions are drawn from; waiters: also names that are waited for. Stores that can't
// list by session are read whole. With an error the look has what was found until then.
func (r *reconciler) mine(waiters bool) (look, error) {
	if r.limits.BySession {
		return r.bySession(waiters)
	}
	l := look{found: map[string]Record{}, all: true}
	return l, r.list(l.found, store.Query{})
}

// list adds to found what q has that is this incarnation's or bears the name of one of its
// handles, and what is no record.
func (r *reconciler) list(found map[string]Record, q store.Query) error {
	recs, err := call(context.Background(), r.core, request{operation: "list"}, func(ctx context.Context) ([]Record, error) {
		return gather(ctx, r.store.List(ctx, q), r.badRecord, func(rec Record) bool {
			if rec.Owner.Incarnation == r.owner.Incarnation {
				return true
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.handles[rec.Name] != nil
		})
	})
	for _, rec := range recs {
		found[rec.Name] = rec
	}
	return err
}

// bySession is mine by the records of the sessions that this Keeper has, or had and did not
// see the end of. What should be there and is not is then asked for by name, to learn
// what has become of it.
func (r *reconciler) bySession(waiters bool) (look, error) {
	var sessions []store.Session
	r.mu.Lock()
	for _, s := range r.sessions.all {
		sessions = append(sessions, s.Session)
	}
	now := r.clock.Now().Mono
	for _, s := range r.sessions.bygone {
		sessions = append(sessions, s.Session)
		if now-s.renewed > max(lateRounds*r.cfg.TTL, 2*s.TTL) { // this is the last time
			delete(r.sessions.bygone, s.ID)
		}
	}
	r.mu.Unlock()
	l := look{found: map[string]Record{}}
	for _, s := range sessions {
		switch err := r.list(l.found, store.Query{Session: s.ID}); {
		case errors.Is(err, store.ErrSessionGone):
			r.mu.Lock()
			delete(r.sessions.bygone, s.ID)
			r.mu.Unlock()
		case err != nil:
			return l, err
		}
	}
	var missed []string
	r.mu.Lock()
	for name, h := range r.handles {
		if _, ok := l.found[name]; ok {
			l.names = append(l.names, name)
		} else if h.claim.Status == settle.Held && h.op == nil || waiters && r.waits.waiting[h] != nil {
			missed = append(missed, name)
		}
	}
	r.mu.Unlock()
	found, err := r.get(context.Background(), missed...)
	maps.Copy(l.found, found)
	l.names = append(l.names, missed...)
	return l, err
}

// offers are the invitations of a Keeper that may still be taken up, by name.
type offers struct {
	*names
	sessions *sessions
	recon    *reconciler
	open     map[string]*openOffer
}

// openOffer is an invitation of this Keeper that may still be taken up.
type openOffer struct {
	nonce   uint64
	sess    *session
	expires time.Duration
	token   Token // of the record that was transferred to it, once that was told; else 0
}

// closeLocked ends the open offer of name (the one with nonce, unless that
// is 0). What may still be transferred to it is left to reconciliation.
func (k *offers) closeLocked(name string, nonce uint64) {
	if o := k.open[name]; o != nil && (nonce == 0 || o.nonce == nonce) {
		k.recon.suspectLocked(name, k.takeLocked(name))
	}
}

// told notes that the offer's name was transferred to it: Adopt claims that record
// at once, and need not be refused first to learn of it.
func (k *offers) told(rec Record) {
	if rec.Owner.Incarnation != k.owner.Incarnation {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.open[rec.Name]; o != nil && o.nonce == rec.Nonce {
		o.token = rec.Token
	}
}

// servedLocked ends the open offer of a name that was won: under our newer
// token a transfer to it finds its condition broken.
func (k *offers) servedLocked(name string) {
	if k.open[name] != nil {
		k.takeLocked(name)
		k.recon.suspectLocked(name)
	}
}

// takeLocked takes the open offer of name away and returns its session.
func (k *offers) takeLocked(name string) *session {
	s := k.open[name].sess
	delete(k.open, name)
	k.sessions.unreserveLocked(s)
	return s
}

func (k *offers) tick(now store.Reading, soon func(time.Duration)) {
	for name, o := range k.open {
		if now.Mono >= o.expires || o.sess.dead {
			k.closeLocked(name, o.nonce)
			continue
		}
		soon(o.expires)
	}
}
