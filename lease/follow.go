package lease

import (
	"cmp"
	"context"
	"errors"
	"iter"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// watches are what a Keeper has followed, for itself and for its users.
type watches struct {
	*names
	history *history
	waits   *waits
	offers  *offers
	recon   *reconciler
	told    func(*entry, settle.Event) // takes it up for what is under way for the name, or its claim
	begun   bool                       // the Keeper's own was, if the store has one
	polling atomic.Int32               // followers that poll, as the store can't watch
}

// beginLocked starts the Keeper's watch, if the store has one, with the first
// use of any lease.
func (k *watches) beginLocked() {
	if k.begun || k.closed {
		return
	}
	k.begun = true
	k.followLocked(&follower{k: k, emit: k.onEvent, caughtUp: func() { k.runs(true) }, lapsed: func() {}, forKeeper: true})
}

// runs: the Keeper's watch does, or does not. What happened before it began was not told.
func (k *watches) runs(does bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched = does; does {
		k.recon.listNowLocked()
	}
}

// onEvent takes up a deletion of any name. It can end a term or wake a waiter, never
// begin a term.
func (k *watches) onEvent(ev store.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.handles[ev.Record.Name]
	if ev.Kind != store.EventDelete || h == nil {
		return
	}
	k.told(h, settle.Event{What: settle.Deleted, Token: ev.Revision})
	k.waits.freeLocked(h)
}

// canFollow asks without asking: a store that can't watch or list says so even
// to a context that is done.
func (k *watches) canFollow(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if w, ok := k.store.(store.Watcher); ok && !errors.Is(first(w.Watch(ctx, store.Scope{})), ErrUnsupported) {
		return true, nil
	}
	return !errors.Is(first(k.store.List(ctx, store.Query{})), ErrUnsupported), nil
}

// first is the error that comes first, if one does.
func first[T any](of iter.Seq2[T, error]) error {
	for _, err := range of {
		return err
	}
	return nil
}

// A watch is to say every so many TTLs that it runs, and is restarted if it has not for refreshRounds
// at the most.
const (
	progressRounds = 2
	refreshRounds  = 3
)

var (
	errSilent  = errors.New("the watch fell silent before it had begun")
	errRefresh = errors.New("the watch starts again")
)

// follower turns watches that end and lists that repeat into one stream.
type follower struct {
	k      *watches
	ctx    context.Context // until when
	stop   context.CancelFunc
	prefix string
	name   string // the one name that is followed, which is the prefix, too; empty: all under that
	emit   func(store.Event)
	// forKeeper: what the Keeper's own leases need. Deletions are enough; and where the store can't
	// watch there are reconciliation and the waiters' looks, and no listing of its own.
	forKeeper bool
	caughtUp  func() // told when all that stands has been told
	lapsed    func() // told when nothing has succeeded for a TTL, or the store's history went back

	failing time.Duration // since when no watch and no listing succeeds
	fails   int           // 0: none; 1: some; -1: that was logged

	heard  heard // of names
	synced bool  // EventSynced was told
	era    era   // of the store's history
}

// followLocked follows records by f until f.stop is called, or the end of the Keeper.
func (k *watches) followLocked(f *follower) {
	f.heard.forget()
	f.era = k.history.era
	f.ctx, f.stop = context.WithCancel(k.ctx)
	k.wg.Go(func() { defer f.stop(); f.run() })
}

// interrupted: the stream is. That is logged, once, if nothing has succeeded for a TTL.
func (f *follower) interrupted(err error) {
	if f.forKeeper {
		f.k.runs(false)
	}
	if errors.Is(err, errRefresh) {
		return
	}
	f.k.history.heed(err)
	if f.forKeeper && errors.Is(err, ErrDenied) {
		f.k.reach.deniedWatch(err)
	}
	now := f.k.clock.Now().Mono
	switch {
	case err == nil:
		f.fails = 0
	case errors.Is(err, ErrSetback): // that is logged once
		f.lapsed()
	case f.fails == 0:
		f.failing, f.fails = now, 1
	case f.fails > 0 && now >= f.failing+f.k.cfg.TTL: // what is shorter is made up for by the next snapshot
		f.fails = -1
		f.k.reach.aside("following records was interrupted", zap.String("prefix", f.prefix), zap.Error(err))
		f.lapsed()
	}
}

// run follows a watch where there is one, which it begins again when it ends. Where there is none it
// follows looks, PollMin apart with jitter: each is a watch that ends with its snapshot.
func (f *follower) run() {
	pause := retryMax / 10
	_, watches := f.k.store.(store.Watcher)
	for watches && f.ctx.Err() == nil {
		f.renew()
		progress, err := f.follow(f.watch)
		if progress {
			f.fails, pause = 0, retryMax/10
		}
		switch {
		case errors.Is(err, ErrUnsupported):
			watches = false
			continue
		case f.ctx.Err() != nil:
			return
		}
		if f.interrupted(err); errors.Is(err, errRefresh) {
			continue
		}
		f.k.meter.restarts.add(1)
		if errors.Is(err, ErrDenied) {
			pause = max(pause, f.k.cfg.TTL)
		}
		f.k.rest(f.ctx, time.Duration(float64(pause)*(0.5+mrand.Float64())), nil)
		pause = min(retryMax, 2*pause)
	}
	if f.forKeeper {
		return
	}
	f.k.polling.Add(1)
	defer f.k.polling.Add(-1)
	for f.ctx.Err() == nil {
		f.renew()
		if _, err := f.follow(f.look); f.ctx.Err() == nil {
			f.interrupted(err)
		}
		f.k.rest(f.ctx, time.Duration(float64(f.k.cfg.PollMin)*(0.5+mrand.Float64())), f.era.ctx.Done())
	}
}

// watch is a watch of the store. One may fall silent. While it begins that is noticed; later there may
// be no changes, so it is restarted now and then unless it says that it runs.
func (f *follower) watch(yield func(store.Event, error) bool) {
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.era.ctx, func() { cancel(errRefresh) })()
	timer := f.k.clock.AfterFunc(f.k.cfg.AttemptTimeout, func() { cancel(errSilent) })
	defer func() { timer.Stop() }()
	endIn := func(d time.Duration, cause error) {
		timer.Stop()
		timer = f.k.clock.AfterFunc(d, func() { cancel(cause) })
	}
	synced := false
	of := store.Scope{Prefix: f.prefix, Deletions: f.forKeeper, Progress: progressRounds * f.k.cfg.TTL}
	for ev, err := range f.k.store.(store.Watcher).Watch(ctx, of) {
		if err != nil {
			yield(ev, cmp.Or(context.Cause(ctx), err))
			return
		}
		synced = synced || ev.Kind == store.EventSynced
		switch {
		case !synced:
			endIn(f.k.cfg.AttemptTimeout, errSilent)
		case ev.Kind == store.EventSynced, ev.Kind == store.EventProgress:
			endIn(time.Duration(float64(refreshRounds*f.k.cfg.TTL)*(0.75+mrand.Float64()/4)), errRefresh)
		}
		if !yield(ev, nil) {
			return
		}
	}
	yield(store.Event{}, cmp.Or(context.Cause(ctx), errors.New("the watch ended")))
}

// look reads what stands: a listing, or the one name that is followed.
func (f *follower) look(yield func(store.Event, error) bool) {
	recs, err := call(f.ctx, f.k.core, request{operation: "list"}, func(ctx context.Context) ([]Record, error) {
		if f.name != "" {
			return f.k.store.Get(ctx, f.name)
		}
		return gather(ctx, f.k.store.List(ctx, store.Query{Prefix: f.prefix}), func(string, error) {}, nil)
	})
	if err != nil {
		yield(store.Event{}, err)
		return
	}
	for _, rec := range recs {
		ev := store.Event{Kind: store.EventPut, Record: rec, Revision: rec.Token}
		if rec.Token == 0 { // it is no record
			ev.Kind = store.EventBad
		}
		if !yield(ev, nil) {
			return
		}
	}
	yield(store.Event{Kind: store.EventSynced}, nil)
}

// follow passes on what a watch or a look tells, which may panic; synced if it came as far as
// EventSynced.
func (f *follower) follow(of iter.Seq2[store.Event, error]) (synced bool, err error) {
	seen := map[string]struct{}{}
	err = boundary.Call(func() error {
		for ev, err := range of {
			if err != nil {
				return err
			}
			name := ev.Record.Name
			if f.name != "" && name != "" && name != f.name {
				continue
			}
			switch ev.Kind {
			case store.EventPut:
				if err := f.judge(ev.Record); err != nil {
					return err
				}
				f.put(ev)
			case store.EventDelete:
				f.delete(ev)
			case store.EventBad:
				f.bad(ev)
			case store.EventProgress:
				f.k.history.heed(nil)
			case store.EventSynced:
				f.sync(seen)
				f.k.history.heed(nil)
				synced, seen = true, nil
			}
			if !synced && name != "" {
				seen[name] = struct{}{}
			}
		}
		return nil
	})
	return synced, err
}

// judge looks at a record that came, or was read, after all that was heard of its name:
// its token is above, or it is the same ownership.
func (f *follower) judge(rec Record) error {
	last := f.heard.last(rec.Name)
	if rec.Token > last.token || last == markOf(rec) {
		return nil
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.k.history.era.forgets != f.era.forgets {
		return nil // what was heard is of no account any more
	}
	return f.k.history.oldLocked(rec.Name, rec.Token, last.token)
}

// renew takes up an era that has begun.
func (f *follower) renew() {
	was := f.era
	f.k.mu.Lock()
	f.era = f.k.history.era
	f.k.mu.Unlock()
	if f.era.forgets != was.forgets {
		f.heard.forget()
		f.emit(store.Event{Kind: store.EventReset})
	}
}

func (f *follower) put(ev store.Event) {
	if f.heard.stands[ev.Record.Name] == markOf(ev.Record) {
		return // told before the interruption
	}
	f.heard.put(ev.Record.Name, markOf(ev.Record))
	f.k.offers.told(ev.Record)
	f.emit(ev)
}

// bad tells of what is no record, once. It stands: its name is not free.
func (f *follower) bad(ev store.Event) {
	if m, ok := f.heard.stands[ev.Record.Name]; ok && m.token == 0 {
		return
	}
	f.heard.put(ev.Record.Name, mark{})
	f.k.badRecord(ev.Record.Name, ErrBadRecord)
	f.emit(ev)
}

func (f *follower) delete(ev store.Event) {
	f.heard.delete(ev.Record.Name)
	f.emit(ev)
}

// sync ends a snapshot: what was known and is not in it is gone.
func (f *follower) sync(seen map[string]struct{}) {
	for name, m := range f.heard.stands {
		if _, ok := seen[name]; !ok {
			f.delete(store.Event{Kind: store.EventDelete, Record: Record{Name: name, Token: m.token}, Revision: m.token})
		}
	}
	if !f.synced {
		f.synced = true
		f.emit(store.Event{Kind: store.EventSynced})
	}
	f.caughtUp()
}

// heard is what a follower was told of names.
type heard struct {
	stands map[string]mark
	// The highest tokens of what is gone: an older history shows itself when a name
	// comes again under one that is not above. Names that are never held again are
	// forgotten, a generation of goneAtOnce at a time.
	gone, goneBefore map[string]mark
}

// mark is one ownership of a name, without its name. The zero mark is what is no record.
type mark struct {
	token Token
	nonce uint64
}

func markOf(r Record) mark { return mark{r.Token, r.Nonce} }

// goneAtOnce bounds a generation of what is gone: of the latest so many names that were
// deleted, and at most twice as many, the tokens are remembered.
const goneAtOnce = 4096

func (d *heard) forget() { *d = heard{stands: map[string]mark{}, gone: map[string]mark{}} }

// last is the latest ownership of a name that was told of; zero if none is remembered.
func (d *heard) last(name string) mark {
	for _, of := range []map[string]mark{d.stands, d.gone, d.goneBefore} {
		if m := of[name]; m.token != 0 {
			return m
		}
	}
	return mark{}
}

func (d *heard) put(name string, m mark) {
	if m.token == 0 { // what is no record says nothing of tokens
		d.bury(name, d.last(name))
	}
	d.stands[name] = m
}

func (d *heard) delete(name string) {
	d.bury(name, d.stands[name])
	delete(d.stands, name)
}

func (d *heard) bury(name string, m mark) {
	if m.token == 0 {
		return
	}
	if len(d.gone) >= goneAtOnce {
		d.gone, d.goneBefore = map[string]mark{}, d.gone
	}
	d.gone[name] = m
}

// What follows tells who holds one name.
//
//	follower ─▶ holding: what stands, once it is known ─▶ the latest alone waits ─▶ a goroutine of its own ─▶ f
//	  (a watch, or looks PollMin apart)

// HolderState says what is known of a name's holder.
type HolderState uint8

const (
	// HolderUnknown: the store has not answered for a TTL of the Keeper's, or its history went
	// back (ErrSetback). What was told before may be past.
	HolderUnknown HolderState = iota
	// NameFree: the name is free.
	NameFree
	// NameHeld: the name is held.
	NameHeld
)

// Holding is what FollowHolder tells.
type Holding struct {
	State HolderState
	// Record is the holder's, of NameHeld alone. If what stands is no record (ErrBadRecord) it has
	// nothing but its Name.
	Record Record
}

// is reports whether both tell the same.
func (h Holding) is(other Holding) bool {
	return h.State == other.State && markOf(h.Record) == markOf(other.Record)
}

// holderFeed is one FollowHolder: the follower's goroutine alone uses it, but for feed.
type holderFeed struct {
	stands  Holding // by what was heard; where nothing was, the name is free
	isKnown bool    // that is all there is
	feed    feed.Latest[Holding]
}

// hear takes up an event of the name.
func (h *holderFeed) hear(ev store.Event) {
	switch ev.Kind {
	case store.EventPut:
		h.stands = Holding{NameHeld, ev.Record}
	case store.EventBad:
		h.stands = Holding{NameHeld, Record{Name: ev.Record.Name}}
	case store.EventDelete:
		if ev.Revision < h.stands.Record.Token {
			return // of what went before
		}
		h.stands = Holding{State: NameFree}
	case store.EventReset:
		h.unknown()
		h.stands = Holding{State: NameFree}
	}
	if h.isKnown {
		h.feed.Set(h.stands)
	}
}

// known: what stands was told.
func (h *holderFeed) known() {
	h.isKnown = true
	h.feed.Set(h.stands)
}

// unknown: what stands may be another by now.
func (h *holderFeed) unknown() {
	h.isKnown = false
	h.feed.Set(Holding{})
}
