package lease

import (
	"context"
	"errors"
	"fmt"
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
	k       *Keeper
	suspect map[string]*suspicion // by name
	running bool
	fails   int // rounds in a row
	// unlisted counts the listings in a row that came to no end.
	unlisted int
	next     time.Duration
	round    int
	noList   bool // the store said that it can't
	// behind: a watch began that had no snapshot, and no look at everything has
	// begun since and succeeded. lag is the pause before that is tried again.
	behind bool
	lag    time.Duration
}

// fullRound: with a watch that runs, every so many rounds lists all the same.
const fullRound = 3

func (r *reconciler) init(k *Keeper) {
	*r = reconciler{k: k, suspect: map[string]*suspicion{}, next: k.clock.Now().Mono + k.cfg.TTL}
}

// claimedLocked reports whether a record of this incarnation has a handle that
// claims it, or an open offer that it was transferred to.
func (r *reconciler) claimedLocked(rec Record) bool {
	if h := r.k.handles[rec.Name]; h != nil && h.claim.Status != settle.Free && h.claim.Stands.Token == rec.Token {
		return true
	}
	if h := r.k.parting[rec.Name]; h != nil && h.op != nil && h.claim.Stands.Token == rec.Token {
		return true
	}
	o := r.k.offers[rec.Name]
	return o != nil && o.nonce == rec.Nonce
}

// wantedLocked reports whether a handle claims the record or may come to.
func (r *reconciler) wantedLocked(rec Record) bool {
	h := r.k.handles[rec.Name]
	return h != nil && h.op != nil || r.claimedLocked(rec)
}

// listNowLocked makes a full round due.
func (r *reconciler) listNowLocked() {
	r.behind, r.next = true, r.k.clock.Now().Mono
	r.k.kick()
}

// tick starts a round when one is due: every TTL.
func (r *reconciler) tick(now store.Reading, soon func(time.Duration)) {
	if r.running {
		return
	}
	k := r.k
	if len(k.handles) == 0 && len(r.suspect) == 0 && len(k.sessions) == 0 && len(k.bygone) == 0 {
		r.next = now.Mono + k.cfg.TTL
		return
	}
	if now.Mono >= r.next {
		r.next = now.Mono + k.cfg.TTL
		r.round++
		r.start()
	}
	soon(r.next)
}

// start runs a round.
func (r *reconciler) start() {
	r.running = true
	full := !r.noList && (!r.k.watchOK || r.behind || r.round%fullRound == 0 || r.doubtLocked())
	var names []string
	if !full {
		names = r.namesLocked(r.noList)
	}
	behind := r.behind
	r.behind = false // one that begins meanwhile counts again
	r.k.wg.Go(func() { r.run(names, full, behind) })
}

// namesLocked returns the suspects, and those of all handles too if there is no
// listing to find out about them.
func (r *reconciler) namesLocked(handles bool) (names []string) {
	for name := range r.suspect {
		names = append(names, name)
	}
	if !handles {
		return names
	}
	for name := range r.k.handles {
		if r.suspect[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

func (r *reconciler) run(names []string, full, behind bool) {
	k := r.k
	var listed map[string]Record // by a listing that came to no end
	began := k.clock.Now().Mono
	l := look{names: names}
	var err error
	if full {
		if l, err = r.mine(behind); err != nil {
			// What this Keeper knows of is looked at by name, whatever keeps a listing
			// from coming to its end.
			full = false
			k.mu.Lock()
			r.noList = errors.Is(err, ErrUnsupported)
			if r.secondLocked(&r.unlisted) && !r.noList {
				k.asideLocked("listing for reconciliation fails, looking at names instead", zap.Error(err))
			}
			listed = l.found
			l = look{names: r.namesLocked(true)}
			k.mu.Unlock()
		}
	}
	if !full {
		l.found, err = k.get(context.Background(), l.names)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { r.running = false; k.kick() }()
	var held []store.Held
	unclaimed := func(rec Record) {
		if rec.Owner.Incarnation == k.owner.Incarnation && !r.wantedLocked(rec) {
			held = append(held, rec.Held())
		}
	}
	if err != nil {
		if r.secondLocked(&r.fails) && k.setback == nil { // which was logged
			k.asideLocked("reconciling fails, to be repeated", zap.Error(err))
		}
		if behind {
			r.lag = min(k.cfg.TTL, max(2*r.lag, retryMax/10))
			r.behind, r.next = true, min(r.next, k.clock.Now().Mono+r.lag)
		}
	} else {
		if behind {
			r.lag = 0
		}
		r.fails = 0
		if full {
			r.unlisted = 0
		}
		r.lookedLocked(l, full, began)
		for _, rec := range l.found {
			unclaimed(rec)
		}
	}
	for name, rec := range listed {
		if now, ok := l.found[name]; !ok || now.Token != rec.Token {
			unclaimed(rec)
		}
	}
	if len(held) > 0 && !k.closed {
		k.wg.Go(func() { r.release(held) })
	}
}

// secondLocked counts a failure in a row, but for those of an outage, which is logged by itself. It
// reports whether it is the second: one may be left of an outage that is over.
func (r *reconciler) secondLocked(fails *int) bool {
	if r.k.outage.on {
		return false
	}
	*fails++
	return *fails == 2
}

// lookedLocked draws conclusions from a complete look that began at began: a
// term that was held before it and that the store does not have is lost; a name
// that no record has is free.
func (r *reconciler) lookedLocked(l look, full bool, began time.Duration) {
	check := func(h *Handle) {
		if rec, ok := l.found[h.name]; !ok || rec.Owner.Incarnation == r.k.owner.Incarnation {
			r.k.freeLocked(h)
		}
		t := h.current.Load()
		if h.claim.Status != settle.Held || h.op != nil || t == nil || t.since >= began {
			return
		}
		rec, ok := l.found[h.name]
		switch {
		case !ok:
			r.k.loseLocked(h, ErrRecordGone)
		case r.k.readLocked(h.name, rec.Token, t.token) != nil:
		case rec.Token != t.token && rec.Owner.Incarnation != r.k.owner.Incarnation:
			r.k.loseLocked(h, ErrTakenOver)
		case rec.Token != t.token:
			r.k.loseLocked(h, fmt.Errorf("token %d stands for %d: %w", rec.Token, t.token, ErrInconsistent))
		}
	}
	if l.all {
		for _, h := range r.k.handles {
			check(h)
		}
	}
	for _, name := range l.names {
		if h := r.k.handles[name]; h != nil {
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
	k := r.k
	for part := range slices.Chunk(held, k.batch()) {
		outs, err := call(k, func(ctx context.Context) ([]store.Outcome, error) { return k.store.Release(ctx, part) })
		k.mu.Lock()
		for i, h := range part {
			if err != nil {
				r.suspectLocked(h.Name)
				continue
			}
			if i < len(outs) && outs[i].OK {
				k.count(k.instruments.reconciled, 1)
				k.log.Info("released a record that no lease claimed", zap.String("lease", h.Name), zap.Uint64("token", uint64(h.Token)))
			}
		}
		k.mu.Unlock()
	}
}

// list reads every record that is this incarnation's or bears the name of one of
// its handles, and what is no record.
func (k *Keeper) list() (map[string]Record, error) {
	return call(k, func(ctx context.Context) (map[string]Record, error) {
		found := map[string]Record{}
		err := gather(ctx, k.store.List(ctx, store.Query{}), k.badRecord, func(rec Record) {
			k.mu.Lock()
			wanted := rec.Token == 0 || k.handles[rec.Name] != nil || rec.Owner.Incarnation == k.owner.Incarnation
			k.mu.Unlock()
			if wanted {
				found[rec.Name] = rec
			}
		})
		return found, err
	})
}

// badRecord reports a value under our prefix that is no record. It is left alone.
func (k *Keeper) badRecord(name string, err error) {
	k.log.Warn("not a lease record, left alone", zap.String("lease", name), zap.Error(err))
}

// closeOfferLocked ends the open offer of name (the one with nonce, unless that
// is 0). What may still be transferred to it is left to reconciliation.
func (k *Keeper) closeOfferLocked(name string, nonce uint64) {
	if o := k.offers[name]; o != nil && (nonce == 0 || o.nonce == nonce) {
		k.recon.suspectLocked(name, k.takeOfferLocked(name))
	}
}

// toldOfOffer notes that the offer's name was transferred to it: Adopt claims that record
// at once, and need not be refused first to learn of it.
func (k *Keeper) toldOfOffer(rec Record) {
	if rec.Owner.Incarnation != k.owner.Incarnation {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.offers[rec.Name]; o != nil && o.nonce == rec.Nonce {
		o.token = rec.Token
	}
}

// offerServedLocked ends the open offer of a name that was won: under our newer
// token a transfer to it finds its condition broken.
func (k *Keeper) offerServedLocked(name string) {
	if k.offers[name] != nil {
		k.takeOfferLocked(name)
		k.recon.suspectLocked(name)
	}
}

// takeOfferLocked takes the open offer of name away and returns its session.
func (k *Keeper) takeOfferLocked(name string) *session {
	s := k.offers[name].sess
	delete(k.offers, name)
	k.unreserveLocked(s)
	return s
}

func (k *Keeper) tickOffers(now store.Reading, soon func(time.Duration)) {
	for name, o := range k.offers {
		if now.Mono >= o.expires || o.sess.dead {
			k.closeOfferLocked(name, o.nonce)
			continue
		}
		soon(o.expires)
	}
}
