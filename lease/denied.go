package lease

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// This file is what becomes of a store that denies (ErrDenied): who may do nothing there is
// told so at once, and the log has a line when it begins and one when it is over.

// denial is a time in which requests of one kind are denied. It is guarded by Keeper.mu.
type denial struct {
	on    bool
	what  string
	since store.Reading
	err   error         // the last one's
	last  time.Duration // when that was heard
	ever  bool
	told  bool // this one was: it did not follow another at once
}

// The kinds of requests that are denied and allowed together. A store may grant sessions to
// who can't write records.
const (
	ofSessions = "sessions"
	ofRecords  = "records"
)

// deniedAgain is for how many TTLs after the last refusal another belongs to what was told
// already: a user may be allowed one name and denied another, in turns.
const deniedAgain = 3

// deniedLocked takes up what came of a request.
func (k *Keeper) deniedLocked(what string, sent, now store.Reading, err error) {
	d := &k.denial
	switch {
	case errors.Is(err, ErrDenied):
		if !d.on {
			again := d.ever && now.Mono-d.last < deniedAgain*k.cfg.TTL
			*d = denial{on: true, what: what, since: sent, ever: true, told: !again}
		}
		if d.err == nil && d.told {
			k.log.Error("the store denies this node what leases need", zap.String("denied", what), k.endpoints(), zap.Error(err))
		}
		d.err, d.last = err, now.Mono
	case err == nil && d.on && d.what == what:
		d.on = false
		if d.told {
			k.log.Warn("the store denies no more", zap.String("denied", what), zap.Duration("after", now.Mono-d.since.Mono))
		}
	}
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

// deniedNow returns what the store denies by, or nil.
func (k *Keeper) deniedNow() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.denial.on {
		return nil
	}
	return k.denial.err
}
