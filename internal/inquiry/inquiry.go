// Package inquiry asks the nodes of a cluster how they stand, over the links between them: one question
// and one answer for all that runs on a node. It does what package console shows and asks for.
package inquiry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	deskID     = "holdfast/inquiry" // the process that nodes send to
	mostAtOnce = 8                  // questions that are being answered; more are not
	mostEvents = 2000               // in one answer
)

// errBusy: the node answers as many questions as it may.
var errBusy = errors.New("busy")

// Part tells its part of a report. It carries out q.Do, if that is its to do, on the same goroutine,
// and says so in r.Said.
type Part func(ctx context.Context, q Request, r *Report)

// Desk asks for an actor system, and answers.
type Desk struct {
	system  *actor.ActorSystem
	started time.Time
	act     atomic.Bool
	last    atomic.Uint64
	asking  sync.Map // by number: *question
	busy    chan struct{}

	keeper atomic.Pointer[lease.Keeper]

	mu    sync.Mutex
	parts map[any]Part
}

type question struct {
	address string
	answer  chan []byte // room for one
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Desk) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the Desk of a system, which answers from then on.
func Of(system *actor.ActorSystem) *Desk {
	made := false
	d := actors.Extension(system, extensionID, func() *Desk {
		made = true
		return &Desk{system: system, started: time.Now(), busy: make(chan struct{}, mostAtOnce), parts: map[any]Part{}}
	})
	if made {
		system.ProcessRegistry.Add(&process{d}, deskID) // the name is this package's alone
	}
	return d
}

// Keep has the Desk tell of a Keeper: the first counts.
func (d *Desk) Keep(k *lease.Keeper) { d.keeper.CompareAndSwap(nil, k) }

// Tell has the Desk ask for a part of its reports; key tells the parts from each other. Nil: no more.
func (d *Desk) Tell(key any, p Part) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p == nil {
		delete(d.parts, key)
		return
	}
	d.parts[key] = p
}

// Allow lets other nodes have Actions carried out here.
func (d *Desk) Allow() { d.act.Store(true) }

// Ask asks the node at an address; the own one, or "", without a link.
func (d *Desk) Ask(ctx context.Context, address string, q Request) (r Report, err error) {
	if address == "" || address == d.system.Address() {
		return d.report(ctx, q), nil
	}
	body, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	n, x := d.last.Add(1), &question{address, make(chan []byte, 1)}
	d.asking.Store(n, x)
	defer d.asking.Delete(n)
	outlet.Tell(d.system, actor.NewPID(address, deskID), &wire.Inquiry{From: d.self(), Number: n, Json: body})
	select {
	case body = <-x.answer:
	case <-ctx.Done():
		if why := actors.Unreached(d.system)[address]; why != "" {
			return r, fmt.Errorf("not reached since %s", why)
		}
		return r, context.Cause(ctx)
	}
	if len(body) == 0 {
		return r, errBusy
	}
	return r, json.Unmarshal(body, &r)
}

// AskLife is Ask of one life of a node. It also returns how long the answer took, and by how much the node's
// clock is ahead of the Keeper's: give or take half of took, as it was read between question and answer.
func (d *Desk) AskLife(ctx context.Context, o lease.Owner, q Request) (r Report, took, ahead time.Duration, err error) {
	began := time.Now()
	r, err = d.Ask(ctx, o.Address, q)
	if err == nil && r.Incarnation != o.Incarnation {
		err = errors.New("another life of it answered")
	}
	took = time.Since(began)
	return r, took, r.At.Sub(time.Unix(0, d.keeper.Load().Clock().Now().Wall)) + took/2, err
}

func (d *Desk) self() *wire.Node {
	return &wire.Node{Address: d.system.Address(), Incarnation: d.system.ID}
}

// report makes the node's report.
func (d *Desk) report(ctx context.Context, q Request) Report {
	k := d.keeper.Load()
	d.mu.Lock()
	parts := slices.Collect(maps.Values(d.parts))
	d.mu.Unlock()
	r := Report{At: time.Now(), Go: runtime.Version(), Version: version(), Started: d.started,
		Unreached: actors.Unreached(d.system), Boot: d.system.ID}
	if q.Do != nil && !d.act.Load() {
		r.Code, r.Said, q.Do = Forbidden, "actions are not enabled on that node", nil
	}
	if q.Do != nil && q.Do.Of != "" && k != nil && q.Do.Of != k.Owner().Incarnation {
		r.Code, r.Said, q.Do = Conflict, "that node has ended: another is at its address", nil
	}
	r.DeadLetters = outlet.Of(d.system).Counts()
	if k != nil {
		ofKeeper(k, q, &r)
	}
	for _, p := range parts {
		if err := boundary.Contained(func() { p(ctx, q, &r) }); err != nil {
			r.Unhealthy = append(r.Unhealthy, err.Error())
		}
	}
	// A singleton that obeys a lease of the application's own was moved above.
	if q.Do != nil && r.Said == "" && k != nil && q.Do.Action == "release" && journal.KindOf(q.Do.Name) == "application" {
		d.Begin(q, &r, func(context.Context) error { return k.AskRelease(q.Do.Name) })
	}
	if q.Do != nil && r.Said == "" {
		r.Code, r.Said = Unknown, fmt.Sprintf("that node has nothing to %s by the name %q", q.Do.Action, q.Do.Name)
	}
	return r
}

// mostWork bounds what an Action may take, and soon how long its asker waits for its end.
const (
	mostWork = 10 * time.Minute
	soon     = time.Second
)

// Begin carries out q.Do with f, and says in r what came of it; that it has begun, if it takes longer
// than a second. The journal has who asked, and why it failed.
func (d *Desk) Begin(q Request, r *Report, f func(ctx context.Context) error) {
	note := func(text string) {
		if k := d.keeper.Load(); k != nil {
			k.Journal().Add(journal.Event{At: time.Unix(0, k.Clock().Now().Wall), Kind: journal.Asked, Name: q.Do.Name, Peer: q.Do.To, Why: errors.New(text)})
			k.Logger().Info(text, zap.String("name", q.Do.Name), zap.String("to", q.Do.To), zap.String("user", q.Do.User))
		}
	}
	note(fmt.Sprintf("%s was asked for by %q", q.Do.Action, q.Do.User))
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), mostWork)
		defer cancel()
		err := boundary.Call(func() error { return f(ctx) })
		if err != nil {
			note(fmt.Sprintf("%s failed: %v", q.Do.Action, err))
		}
		done <- err
	}()
	wait := time.NewTimer(soon)
	defer wait.Stop()
	select {
	case err := <-done:
		if r.Said = q.Do.Action + ": done"; err != nil {
			r.Code, r.Said = Conflict, err.Error()
		}
	case <-wait.C:
		r.Said = q.Do.Action + ": begun"
	}
}

// ofKeeper tells of a Keeper, its sessions and its journal.
func ofKeeper(k *lease.Keeper, q Request, r *Report) {
	i := k.Info()
	r.At = time.Unix(0, k.Clock().Now().Wall)
	r.Waiting, r.P50, r.P99, r.Failed, r.Attempt = i.Waiting, i.Answers.P50, i.Answers.P99, i.Answers.Failed, i.Answers.Attempt
	for _, s := range i.Sessions {
		r.Sessions = append(r.Sessions, Session{ID: fmt.Sprintf("%016x", uint64(s.ID)), Leases: s.Leases, TTL: s.TTL, Trusted: s.Left, Failed: s.Failed, Error: text(s.Err)})
	}
	r.Incarnation, r.Boot = i.Owner.Incarnation, i.Owner.Incarnation
	if q.Boot != r.Boot {
		q.After = 0
	}
	events, missing := k.Journal().Since(q.After, q.From, mostEvents)
	r.Missing, r.Last = missing, q.After
	for _, e := range events {
		r.Events = append(r.Events, Event{e, text(e.Why)})
		r.Last = e.Number
	}
}

// text is what an error says, which may be users' code: fmt contains its panic.
func text(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%.512v", err)
}

// version is that of this module.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(b.Deps, &b.Main) {
		if m.Path == "github.com/holdfast-go/holdfast" {
			return m.Version
		}
	}
	return ""
}

// process is what other nodes send to.
type process struct{ *Desk }

// SendUserMessage implements actor.Process. It runs on the goroutine that read a link.
func (p *process) SendUserMessage(pid *actor.PID, message any) {
	_, msg, _ := actor.UnwrapEnvelope(message)
	switch m := msg.(type) {
	case *wire.Inquiry:
		if !wire.Fits(m) || m.Type != "" {
			return
		}
		select {
		case p.busy <- struct{}{}:
			go p.answer(m)
		default:
			p.send(m, nil)
		}
	case *wire.Account:
		v, _ := p.asking.Load(m.Number)
		if q, ok := v.(*question); ok && m.From.GetAddress() == q.address && p.asking.CompareAndDelete(m.Number, v) {
			q.answer <- m.Json
		}
	default:
		outlet.Of(p.system).DeadLetter(pid, message)
	}
}

func (p *process) answer(m *wire.Inquiry) {
	defer func() { <-p.busy }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var q Request
	if json.Unmarshal(m.Json, &q) != nil {
		return
	}
	if body, err := p.report(ctx, q).within(wire.PayloadLimit(p.system)); err == nil { // else there is a number that JSON lacks
		p.send(m, body)
	}
}

// within is r in JSON of at most limit bytes. Of events and of shards, of which there are more, it leaves
// half out until it fits: the asker has the events with its next question.
func (r Report) within(limit int) ([]byte, error) {
	for {
		body, err := json.Marshal(r)
		shards := 0
		for _, t := range slices.Concat(r.Types, r.Partitions) {
			shards += len(t.Own)
		}
		switch half := len(r.Events) / 2; {
		case err != nil || len(body) <= limit || len(r.Events)+shards == 0:
			return body, err
		case len(r.Events) > shards:
			r.Last, r.Events = r.Events[half].Number-1, r.Events[:half]
		default:
			for _, all := range [][]Type{r.Types, r.Partitions} {
				for i, t := range all {
					all[i].Own = t.Own[:len(t.Own)/2]
				}
			}
		}
	}
}

func (p *process) send(m *wire.Inquiry, body []byte) {
	outlet.Tell(p.system, actor.NewPID(m.From.GetAddress(), deskID), &wire.Account{Number: m.Number, From: p.self(), Json: body})
}

// SendSystemMessage implements actor.Process.
func (p *process) SendSystemMessage(pid *actor.PID, message any) {
	outlet.Of(p.system).DeadSignal(pid, message)
}

// Stop implements actor.Process: it ends with its system.
func (p *process) Stop(*actor.PID) {}
