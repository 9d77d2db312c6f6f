// Package console shows a cluster: who holds what, since when, why it moved, why something does not
// run. It is an http.Handler with a page and a JSON API, for any node and for a store alone.
//
//	c, err := console.New(keeper, system, console.Config{})
//	defer c.Close()
//	mux.Handle("/admin/holdfast/", http.StripPrefix("/admin/holdfast", c))
//
// A node of package node mounts it by node.Config.Console. Any node can serve it: what this one does not
// know it asks the others for, once a second, or four times while leases change hands, and only while
// somebody looks. It reads; with
// Config.Actions it asks nodes for a drain, a move or a release. There is no action that takes a lease
// away from work that runs.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Config is what a Console may do beyond reading.
type Config struct {
	// Authorize is asked for every request, those for the page included; an error is 403. It may be
	// called concurrently. Nil: all who reach the handler may read.
	Authorize func(r *http.Request, a Access) (user string, err error)
	// Actions allows those of Actions to whom Authorize allows, which it needs. A node carries out what
	// another's console asks of it only if it has Actions itself.
	Actions bool
	// Text changes or hides what may tell secrets: metadata, reasons, panics. It may be called
	// concurrently. Nil: they are shown as they are.
	Text func(string) string
}

// shown is a text that may tell secrets, as it is shown.
func (c *Config) shown(text string) string {
	if c.Text != nil && text != "" {
		return c.Text(text)
	}
	return text
}

// Access is what a request would do.
type Access struct {
	Action string // "read", or one of Actions
	Target string // a node's id or a lease's name; of a move "singleton/" and the singleton's name, escaped
}

// Console is the page and its JSON API. Safe for concurrent use.
type Console struct {
	keeper *lease.Keeper
	desk   *inquiry.Desk // nil: the store alone
	cfg    Config
	now    func() time.Time
	http   *handler

	life context.Context
	end  context.CancelFunc

	busy       chan struct{} // has room for one, to which the rest belongs
	records    *records      // nil: they are not followed
	resting    *time.Timer   // which ends that
	last       *seen         // what was seen last
	looked     time.Time     // when that had been seen
	events     []happened
	lives      map[string]*life // by incarnation
	incomplete time.Time        // until when it matters that events did not fit
}

// life is what a node has told.
type life struct {
	boot   string // its journal is known so far
	after  uint64
	heard  time.Time // when it answered last
	silent bool      // it did not answer soon after that
	missed time.Time // until when it matters that events of it are missing
}

// The bounds of what a Console does.
const (
	askEvery  = time.Second     // at most, but for what the records tell
	soonest   = askEvery / 4    // after a look, another because of that
	askWithin = 2 * time.Second // then a node is missing
	idle      = time.Minute     // after the last look, nothing is followed any more
	// A node that does not answer so soon after it has ended in between, if it did.
	silentWithin = 2 * (askEvery + askWithin)
	mostEvents   = 50_000 // of all nodes
)

// New makes a Console of what keeper's store has and, if system is not nil, of what the nodes tell. The
// system must be the one whose address keeper has. Close it before the Keeper. Errors: lease.ErrInvalid.
func New(keeper *lease.Keeper, system *actor.ActorSystem, cfg Config) (*Console, error) {
	switch {
	case keeper == nil:
		return nil, fmt.Errorf("console.New: keeper: %w: nil", lease.ErrInvalid)
	case cfg.Actions && cfg.Authorize == nil:
		return nil, fmt.Errorf("console.New: Config.Actions: %w: needs Authorize, which says who may", lease.ErrInvalid)
	case cfg.Actions && system == nil:
		return nil, fmt.Errorf("console.New: Config.Actions: %w: needs an actor system: a store alone can't ask nodes", lease.ErrInvalid)
	}
	c := &Console{keeper: keeper, cfg: cfg, busy: make(chan struct{}, 1), lives: map[string]*life{}}
	c.now = func() time.Time { return time.Unix(0, keeper.Clock().Now().Wall).UTC() }
	c.life, c.end = context.WithCancel(context.Background())
	c.http = newHandler(c.life, c, cfg)
	if system != nil {
		c.desk = inquiry.Of(system)
		c.desk.Keep(keeper)
		if cfg.Actions {
			c.desk.Allow()
		}
	}
	return c, nil
}

// Close ends what the Console follows. It may be called again.
func (c *Console) Close() {
	c.end()
	c.http.hub.wait()
	c.rest()
}

// rest ends following the records, as it is a minute after the last look.
func (c *Console) rest() {
	c.busy <- struct{}{}
	defer func() { <-c.busy }()
	if c.records != nil {
		c.resting.Stop()
		c.records.stop()
		c.records = nil
	}
}

// Snapshot returns the whole, with events and timeline from since on, an hour at the most. What it says
// is a second old at most, a quarter of one where the holder of a lease has changed, or three if a node is
// silent. A node that does not answer within two seconds is in Missing, and what the records say of it
// stands. What it returns is others', too, and must not be changed. Errors: that of the first listing of
// the store, ctx's.
func (c *Console) Snapshot(ctx context.Context, since time.Time) (Snapshot, error) {
	in, err := c.look(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if !since.After(in.from) {
		return in.whole(), nil
	}
	in.from = since
	return build(in), nil
}

// look returns what is seen, which was complete a second ago at most.
func (c *Console) look(ctx context.Context) (seen, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.life, func() { stop(lease.ErrClosed) })()
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return seen{}, context.Cause(ctx)
	}
	if c.life.Err() != nil {
		return seen{}, fmt.Errorf("console: %w", lease.ErrClosed)
	}
	// From its end on: while a node does not answer, a look takes longer than what it tells is good for.
	good := askEvery
	if c.records != nil && c.records.changed.Load() {
		good = soonest
	}
	if c.last != nil && time.Since(c.looked) < good {
		return *c.last, nil
	}
	if c.records == nil {
		r, err := follow(c.keeper)
		if err != nil {
			return seen{}, err
		}
		c.records, c.resting = r, time.AfterFunc(idle, c.rest)
	}
	c.resting.Reset(idle)
	records, err := c.records.all(ctx)
	if err != nil {
		return seen{}, err
	}
	in := seen{at: c.now(), store: c.keeper.Info(), records: records, answers: map[string]answer{}, cfg: c.cfg}
	if in.store.Failure != nil {
		in.failure = in.store.Failure.Error()
	}
	if c.desk != nil {
		in.self = in.store.Owner.ID
		in.answers = c.ask(ctx, records, in.at)
	}
	c.take(&in)
	in.from = in.at.Add(-journal.Age)
	in.whole = sync.OnceValue(func() Snapshot { return build(in) })
	c.last, c.looked = &in, time.Now()
	return in, nil
}

// ask asks the nodes that hold anything, and those that were asked, side by side.
func (c *Console) ask(ctx context.Context, records []lease.Record, at time.Time) map[string]answer {
	owners := map[string]lease.Owner{c.keeper.Owner().Incarnation: c.keeper.Owner()}
	for _, r := range records {
		if r.Owner.Address != "" && journal.KindOf(r.Name) != "application" {
			owners[r.Owner.Incarnation] = r.Owner
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, errors.New("no answer within 2 s"))
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string]answer{}
	for _, o := range owners {
		known := c.lifeOf(o.Incarnation)
		all.Go(func() {
			q := inquiry.Request{Boot: known.boot, After: known.after, From: at.Add(-journal.Age)}
			a := answer{owner: o}
			var r inquiry.Report
			if r, a.took, a.offset, a.err = c.desk.AskLife(ctx, o, q); a.err == nil {
				a.report = &r
			}
			mu.Lock()
			defer mu.Unlock()
			answers[o.Incarnation] = a
		})
	}
	all.Wait()
	return answers
}

func (c *Console) lifeOf(incarnation string) *life {
	if c.lives[incarnation] == nil {
		c.lives[incarnation] = &life{}
	}
	return c.lives[incarnation]
}

// take adds what the answers tell to what is known.
func (c *Console) take(in *seen) {
	c.events = slices.Clone(c.events) // others make Snapshots of them
	for incarnation, a := range in.answers {
		x := c.lifeOf(incarnation)
		if a.report == nil {
			x.silent = x.silent || in.at.Sub(x.heard) <= silentWithin
			continue
		}
		x.heard, x.silent, x.boot, x.after = in.at, false, a.report.Boot, a.report.Last
		if a.report.Missing {
			x.missed = in.at.Add(journal.Age)
		}
		shift, doubt := a.offset, a.took/2
		if incarnation == in.store.Owner.Incarnation {
			shift, doubt = 0, 0
		} else if off := max(shift, -shift); off <= doubt {
			shift, doubt = 0, doubt+off
		}
		for _, e := range a.report.Events {
			e.At, e.Reason = utc(e.At.Add(-shift)), c.cfg.shown(e.Reason)
			c.events = append(c.events, happened{Event: e, node: a.owner.ID, boot: incarnation, doubt: doubt,
				observed: e.Kind == journal.Seen || e.Kind == journal.SeenFree})
		}
	}
	slices.SortStableFunc(c.events, func(a, b happened) int { return a.At.Compare(b.At) })
	old, _ := slices.BinarySearchFunc(c.events, in.at.Add(-journal.Age), func(e happened, t time.Time) int { return e.At.Compare(t) })
	c.events = c.events[old:]
	if over := len(c.events) - mostEvents; over > 0 {
		c.incomplete, c.events = in.at.Add(journal.Age), c.events[over:]
	}
	in.events, in.missing, in.heard = c.events, in.at.Before(c.incomplete), map[string]time.Time{}
	for incarnation, x := range c.lives {
		in.missing = in.missing || in.at.Before(x.missed)
		if x.silent {
			in.heard[incarnation] = x.heard
		}
		if in.at.Sub(x.heard) > journal.Age && !in.at.Before(x.missed) {
			delete(c.lives, incarnation)
		}
	}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Act carries out a Request for a user whom Authorize allowed it: it asks the node that it concerns. The
// errors are *Refusal, and those of Snapshot.
func (c *Console) Act(ctx context.Context, user string, r Request) (Accepted, error) {
	if c.desk == nil || !c.cfg.Actions {
		return Accepted{}, refuse(inquiry.Forbidden, "actions are not enabled here: this is read-only")
	}
	in, err := c.look(ctx)
	if err != nil {
		return Accepted{}, err
	}
	to, name, err := target(in.whole(), r)
	if err != nil {
		return Accepted{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, errors.New("the node did not answer within 2 s: it is not known whether it has begun"))
	defer cancel()
	answer, err := c.desk.Ask(ctx, to.Address, inquiry.Request{From: in.at, Do: &inquiry.Action{
		Action: r.Action, Name: name, To: r.To, User: user, Of: to.Incarnation}})
	switch {
	case err != nil:
		return Accepted{}, &Refusal{"unavailable", c.cfg.shown(err.Error())}
	case answer.Code != "":
		return Accepted{}, &Refusal{answer.Code, c.cfg.shown(answer.Said)}
	}
	return Accepted{Text: answer.Said}, nil
}

// target is the node that a Request concerns, and the name of the lease, if it is about one.
func target(s Snapshot, r Request) (to Owner, name string, err error) {
	if r.Action == "drain" || r.Action == "undrain" {
		for _, n := range s.Nodes { // of two lives, until the record of the first ends: the one that answers
			if n.ID == r.Node && n.State != "gone" && (to.ID == "" || n.Source == "asked") {
				to = n.Owner
			}
		}
		switch {
		case to.ID == "":
			return to, "", refuse(inquiry.Unknown, "there is no node %.64q", r.Node)
		case to.Address == "" && to.ID != s.Node:
			return to, "", refuse(inquiry.Conflict, "node %.64q has no address to ask it at, as it has no Listen: ask its own page", to.ID)
		}
		return to, "", nil
	}
	name = r.Name
	if r.Action == "move" { // Authorize was asked for the singleton of that name, and for no other
		name = named("singleton", r.Name)
		for _, x := range s.Singletons {
			if x.Name == r.Name {
				name = x.Lease
			}
		}
	}
	i := slices.IndexFunc(s.Leases, func(l Lease) bool { return l.Name == name })
	if i < 0 {
		return to, "", refuse(inquiry.Unknown, "there is no lease %.64q", name)
	}
	switch l := s.Leases[i]; {
	case l.Owner == nil:
		return to, "", refuse(inquiry.Conflict, "no node holds %.64q", name)
	case r.Token != 0 && r.Token != l.Token:
		return to, "", refuse(inquiry.Conflict, "%.64q is held under token %d by now, by %.64q", name, l.Token, l.Owner.ID)
	case l.Owner.Address == "":
		return to, "", refuse(inquiry.Conflict, "%.64q, which holds %.64q, has no address to ask it at", l.Owner.ID, name)
	default:
		return *l.Owner, name, nil
	}
}

// records are those of the store, as they are followed.
type records struct {
	keeper *lease.Keeper
	stop   func()
	synced chan struct{}
	sync   func() // closes that

	changed atomic.Bool // holders have, since they were read last
	mu      sync.Mutex
	now     map[string]lease.Record
}

func follow(k *lease.Keeper) (r *records, err error) {
	r = &records{keeper: k, synced: make(chan struct{}), now: map[string]lease.Record{}}
	r.sync = sync.OnceFunc(func() { close(r.synced) })
	r.stop, err = k.Watch("", r.hear)
	return r, err
}

func (r *records) hear(ev store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ev.Kind {
	case store.EventPut:
		if r.now[ev.Record.Name].Token != ev.Record.Token {
			r.changed.Store(true)
		}
		r.now[ev.Record.Name] = ev.Record
	case store.EventDelete:
		delete(r.now, ev.Record.Name)
		r.changed.Store(true)
	case store.EventReset:
		clear(r.now)
	case store.EventSynced:
		r.sync()
	}
}

// all returns the records, by name.
func (r *records) all(ctx context.Context) (all []lease.Record, err error) {
	select {
	case <-r.synced:
	case <-ctx.Done():
		if f := r.keeper.Info().Failure; f != nil {
			return nil, fmt.Errorf("the store's records are not known: %w", f)
		}
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	r.changed.Store(false)
	for _, x := range r.now {
		all = append(all, x)
	}
	r.mu.Unlock()
	for i := range all {
		all[i].Granted = utc(all[i].Granted)
	}
	slices.SortFunc(all, func(a, b lease.Record) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
