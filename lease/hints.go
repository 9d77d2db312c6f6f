package lease

import (
	"context"
	"errors"
	"iter"
	mrand "math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// This file hears of names where the store can't watch but gives hints. A hint makes the
// Keeper look sooner than its next poll; it decides nothing.
//
//	hint ─▶ a name that is waited for ─▶ look (50 ms apart) ─▶ free: its waiters
//	    ├─▶ a term that is held ───────▶ look (PollMin apart) ─▶ gone: its loss
//	    └─▶ who follows a prefix ──────▶ look (50 ms apart) ─▶ differences: events

// Hint says that something may have changed.
type Hint struct {
	// Name is whose record it may be; empty: any under the prefix.
	Name string
}

// Hinter is implemented by stores that tell of changes, but not of all, such as by a
// database's notifications. Without a Watch a Keeper then looks when it is hinted, and polls
// at PollMax only, in case a hint is missing.
type Hinter interface {
	// Hints yields one Hint without a name as soon as it listens, so that what changed
	// before is looked for, and then a hint for each put, deletion and transfer of a name
	// that begins with prefix. The same goes for an expiry, unless Get tells of records
	// how long they have left (Record.Left): then that is waited for.
	//
	// Hints may be missing, come more than once, late, or for nothing, and for names that
	// have another prefix. One that comes before its change can be read is made up for after
	// PollMin. An error or the end means that hints are missing from then on; they are
	// asked for again. A Keeper asks once, for all names.
	Hints(ctx context.Context, prefix string) iter.Seq2[Hint, error]
}

const (
	// hintRest is the time between looks that hints ask for: a storm of hints costs no
	// more than polling at this pace.
	hintRest = 50 * time.Millisecond
	// mostHinted bounds how many names one listener looks at one by one. With more of
	// them, it lists.
	mostHinted = 1000
)

var errHintsEnded = errors.New("the hints ended")

// hinting is what a Keeper makes of hints. It is guarded by Keeper.mu.
type hinting struct {
	asked     bool   // for hints, if the store has them
	on        bool   // they come
	waits     looker // at names that are waited for
	terms     looker // at names that are held
	listeners map[*listener]struct{}
}

func (d *hinting) init(now time.Duration) {
	*d = hinting{waits: looker{at: now}, terms: looker{at: now}, listeners: map[*listener]struct{}{}}
}

// looker gathers what hints ask to be looked at: one look is under way at the most, and
// one is pending.
type looker struct {
	names map[string]struct{}
	all   bool
	busy  bool
	at    time.Duration // of the next look, at the earliest
}

// want adds a name; "": whatever it looks at.
func (l *looker) want(name string) {
	switch {
	case l.all:
	case name == "":
		l.all, l.names = true, nil
	case l.names == nil:
		l.names = map[string]struct{}{name: {}}
	default:
		l.names[name] = struct{}{}
	}
}

func (l *looker) pending() bool { return l.all || len(l.names) > 0 }

// begin begins a look at what is pending.
func (l *looker) begin() (names map[string]struct{}, all bool) {
	names, all = l.names, l.all
	l.names, l.all, l.busy = nil, false, true
	return names, all
}

// end ends a look that began at began. The next rests as long as this one took, so that
// looks take half of the time at the most.
func (l *looker) end(began, now, rest time.Duration) {
	l.busy, l.at = false, now+max(rest, now-began)
}

// hintsLocked asks for hints with the first use of any, if the store has them.
func (k *Keeper) hintsLocked() {
	h, ok := k.store.(Hinter)
	if !ok || k.hinting.asked || k.closed {
		return
	}
	k.hinting.asked = true
	k.wg.Go(func() { k.hear(h) })
}

// hear asks for hints, and again when they end.
func (k *Keeper) hear(h Hinter) {
	pause, good, told := k.cfg.RetryMax/10, k.clock.Now().Mono, false
	for k.ctx.Err() == nil {
		began := k.clock.Now().Mono
		err := k.hearOnce(h)
		switch {
		case k.ctx.Err() != nil:
			return
		case errors.Is(err, errRefresh):
			continue
		}
		k.hintsEnded()
		if errors.Is(err, ErrUnsupported) {
			return
		}
		now := k.clock.Now().Mono
		switch {
		case now-began >= k.cfg.TTL:
			pause, good, told = k.cfg.RetryMax/10, now, false
		case now-good >= k.cfg.TTL && !told:
			told = true
			k.aside("there are no hints, polling instead", zap.Error(err))
		}
		k.rest(k.ctx, time.Duration(float64(pause)*(0.5+mrand.Float64())), nil)
		pause = min(k.cfg.RetryMax, 2*pause)
	}
}

// hearOnce takes hints until they end. They run on a goroutine of their own, as a store may
// panic, end it, or not come back.
func (k *Keeper) hearOnce(h Hinter) error {
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	// As with a watch: one that falls silent is asked anew.
	endIn := func(d time.Duration, cause error) Timer {
		return k.clock.AfterFunc(d, func() { k.hintsDoubted(); cancel(cause) })
	}
	ended := make(chan error, 1)
	k.calls.Go(func() {
		err := errEnded
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
			}
			if c := context.Cause(ctx); errors.Is(c, errSilent) || errors.Is(c, errRefresh) {
				err = c
			}
			ended <- err
		}()
		timer := endIn(k.cfg.AttemptTimeout, errSilent)
		defer func() { timer.Stop() }()
		for hint, failed := range h.Hints(ctx, "") {
			if failed != nil {
				err = failed
				return
			}
			if ctx.Err() != nil {
				return
			}
			timer.Stop()
			timer = endIn(k.refreshIn(), errRefresh)
			k.hinted(hint)
		}
		err = errHintsEnded
	})
	select {
	case err := <-ended:
		return err
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
}

// hinted takes up one hint.
func (k *Keeper) hinted(hint Hint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hinting.on || ValidateName(hint.Name) != nil { // what came before it is not known
		hint.Name = ""
	}
	k.hinting.on = true
	if hint.Name == "" {
		k.lookEverywhereLocked()
		return
	}
	if h := k.handles[hint.Name]; h != nil {
		if _, ok := k.waiting[h]; ok {
			k.hinting.waits.want(h.name)
		}
		if h.status == held {
			k.hinting.terms.want(h.name)
		}
		k.kick()
	}
	for l := range k.hinting.listeners {
		if l.hears(hint.Name) {
			l.want(hint.Name)
		}
	}
}

// lookEverywhereLocked: anything may have changed. Terms are left to reconciliation: stores
// that give no names would have them looked at, all, with each change of any.
func (k *Keeper) lookEverywhereLocked() {
	if len(k.waiting) > 0 {
		k.hinting.waits.want("")
		k.kick()
	}
	for l := range k.hinting.listeners {
		l.want("")
	}
}

// hintsDoubted: they have been silent for so long that polling is the better way.
func (k *Keeper) hintsDoubted() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hinting.on = false
}

// hintsEnded: what changes from now on is not told.
func (k *Keeper) hintsEnded() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hinting.on {
		return
	}
	k.hinting.on = false
	for h := range k.waiting {
		h.polls = 0
	}
	k.lookEverywhereLocked()
}

// tickHints looks at what was hinted and is due.
func (k *Keeper) tickHints(now Reading, soon func(time.Duration)) {
	due := func(l *looker) bool {
		switch {
		case l.busy || !l.pending():
			return false
		case now.Mono < l.at:
			soon(l.at)
			return false
		}
		return true
	}
	if l := &k.hinting.waits; due(l) {
		k.lookAtWaiting(l, now)
	}
	if l := &k.hinting.terms; due(l) {
		k.lookAtTerms(l, now)
	}
}

// lookAtWaiting looks at names that are waited for, in place of their next poll. Another
// look follows PollMin later, in case the hint was early.
func (k *Keeper) lookAtWaiting(l *looker, now Reading) {
	hinted, all := l.begin()
	var names []string
	marks := map[string]Token{}
	for h := range k.waiting {
		if _, ok := hinted[h.name]; ok || all {
			names = append(names, h.name)
			marks[h.name] = h.seen
			h.pollAt = now.Mono + k.cfg.PollMin
		}
	}
	k.wg.Go(func() {
		k.look(names, marks)
		k.mu.Lock()
		defer k.mu.Unlock()
		l.end(now.Mono, k.clock.Now().Mono, hintRest)
		k.kick()
	})
}

// lookAtTerms looks whether what is held still stands, as reconciliation does; suspects
// are left to that, which counts its looks.
func (k *Keeper) lookAtTerms(l *looker, now Reading) {
	hinted, _ := l.begin()
	var names []string
	for name := range hinted {
		if h := k.handles[name]; h != nil && h.status == held && !k.recon.suspects(name) {
			names = append(names, name)
		}
	}
	k.wg.Go(func() {
		found, err := k.get(context.Background(), names)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err == nil {
			k.recon.lookedLocked(look{found: found, names: names}, false, now.Mono)
		}
		l.end(now.Mono, k.clock.Now().Mono, k.cfg.PollMin)
		k.kick()
	})
}

// expiryLocked puts the next look at a name that is waited for to the moment at which its
// record ends, unless it is renewed: not every store hints of that.
func (k *Keeper) expiryLocked(h *Handle, rec Record) {
	if k.hinting.on && rec.Left > 0 {
		k.lookInLocked(h, max(rec.Left+time.Millisecond, k.cfg.PollMin/4))
	}
}

// lookInLocked has a name that is waited for be looked at in d, or sooner.
func (k *Keeper) lookInLocked(h *Handle, d time.Duration) {
	h.pollAt = min(h.pollAt, k.clock.Now().Mono+d)
	k.kick()
}

// rest waits on the Keeper's clock, until woken at the latest.
func (k *Keeper) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	over := make(chan struct{})
	defer k.clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
	case <-wake:
	case <-ctx.Done():
	}
}
