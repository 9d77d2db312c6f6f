package lease

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/store"
)

// reach is how a Keeper reaches its store.
type reach struct {
	*core
	// standing says how many terms live, for how long they are trusted if none is renewed, and how many
	// handles have none.
	standing func(now store.Reading) (held int, left time.Duration, idle int)
	outage   outage
	denial   denial
}

// outage is a time in which every request that leases live by failed: those that
// open and renew sessions, acquire, release and transfer. It is guarded by Keeper.mu.
type outage struct {
	on    bool
	since store.Reading // when the first of them was sent
	told  bool          // it has lasted for AttemptTimeout
	err   error         // the last one's
	lost  int           // terms that ended in it
}

// heard takes up what came of such a request. An outage is one line in the log when
// it has lasted for AttemptTimeout, and one when it is over.
func (k *reach) heard(what string, sent store.Reading, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && !k.outage.on && !k.denial.on {
		return
	}
	o, now := &k.outage, k.clock.Now()
	k.deniedLocked(what, sent, now, err)
	switch {
	case k.ctx.Err() != nil: // of our own making
		return
	case answered(err):
		if o.told {
			k.note(now, journal.Back, "store", 0, "", nil)
			k.log.Warn("store reachable again", zap.Duration("after", now.Mono-o.since.Mono), zap.Int("lost", o.lost))
		}
		*o = outage{}
		return
	case !o.on:
		*o = outage{on: true, since: sent}
	}
	o.err = err
	if !o.told && now.Mono-o.since.Mono >= k.cfg.AttemptTimeout {
		o.told = true
		k.note(o.since, journal.Away, "store", 0, "", err)
		held, left, idle := k.standing(now)
		k.log.Warn("store unreachable", zap.Time("since", time.Unix(0, o.since.Wall)), k.endpoints(),
			zap.Int("held", held), zap.Duration("trusted", left), zap.Int("not_held", idle), zap.Error(err),
			boundary.Do("see to the store and the way to it; this node tries on by itself"))
	}
}

// answered reports whether err is the store's word, and no failure to reach it.
func answered(err error) bool {
	words := []error{store.ErrSessionGone, ErrDenied, ErrBadRecord, ErrUnsupported, ErrInvalid, ErrInconsistent}
	return err == nil || slices.ContainsFunc(words, func(word error) bool { return errors.Is(err, word) })
}

// endpoints says where the store is reached, if it tells. It is asked when the line is written, without
// the lock: they may change.
func (k *reach) endpoints() zap.Field { return zap.Stringer("endpoint", endpoints{k.store}) }

type endpoints struct{ store.Store }

func (e endpoints) String() string {
	return cmp.Or(abbreviate(e.Limits().Endpoints), "not told by the store")
}

// aside logs at a lower level while an outage or a denial has been logged, or is about to be.
func (k *reach) asideLocked(msg string, fields ...zap.Field) {
	if k.outage.on || k.denial.on {
		k.log.Info(msg, fields...)
		return
	}
	k.log.Warn(msg, fields...)
}

func (k *reach) aside(msg string, fields ...zap.Field) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asideLocked(msg, fields...)
}

// What follows is what becomes of a store that denies (ErrDenied): who may do nothing there is
// told so at once, and the log has a line when it begins and one when it is over.

// denial is a time in which requests of one kind are denied. It is guarded by Keeper.mu.
type denial struct {
	on    bool
	what  string
	since store.Reading
	err   error         // the last one's; it outlasts the denial, nil: there was none yet
	last  time.Duration // when that was heard
	told  bool          // this one was: it did not follow another at once
}

// The kinds of requests that are denied and allowed together. A store may grant sessions to
// who can't write records.
const (
	ofSessions = "sessions"
	ofRecords  = "records"
	ofWatches  = "watches"
)

// deniedAgain is for how many TTLs after the last refusal another belongs to what was told
// already: a user may be allowed one name and denied another, in turns.
const deniedAgain = 3

// deniedLocked takes up what came of a request.
func (k *reach) deniedLocked(what string, sent, now store.Reading, err error) {
	d := &k.denial
	switch {
	case errors.Is(err, ErrDenied):
		if !d.on {
			*d = denial{on: true, what: what, since: sent, told: d.err == nil || now.Mono-d.last >= deniedAgain*k.cfg.TTL}
			if d.told {
				k.log.Error("the store denies this node what leases need", zap.String("denied", what), k.endpoints(), zap.Error(err),
					boundary.Do("give its user the rights that the store's page in docs lists; this node tries on by itself"))
			}
		}
		d.err, d.last = err, now.Mono
		if d.what == ofWatches {
			d.what = what
		}
	case err == nil && d.on && d.what == what:
		d.on = false
		if d.told {
			k.log.Warn("the store denies no more", zap.String("denied", what), zap.Duration("after", now.Mono-d.since.Mono))
		}
	}
}

// deniedWatch takes up that the Keeper's own watch was denied. That is over when it was not for as long
// as another refusal would belong to this one.
func (k *reach) deniedWatch(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	k.deniedLocked(ofWatches, now, now, err)
	k.clock.AfterFunc(deniedAgain*k.cfg.TTL, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.denial.last == now.Mono && k.ctx.Err() == nil {
			k.deniedLocked(ofWatches, now, k.clock.Now(), nil)
		}
	})
}

// heardOf is what a renewal says of the store: err, what denies the first session that it was denied
// for, or, if the store's word came for none of the sessions, why it did not for the last.
func heardOf(grants []store.Grant, err error) error {
	if err != nil {
		return err
	}
	some := false
	for _, g := range grants {
		if errors.Is(g.Err, ErrDenied) {
			return g.Err
		}
		some, err = some || answered(g.Err), g.Err
	}
	if some {
		return nil
	}
	return err
}
