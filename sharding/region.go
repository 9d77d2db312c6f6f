package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
)

// What calls what in a Region:
//
//	Tell, Ask, Ref ──────▶ Region ──entity active here─────────────────────▶ its gate
//	                          │  └─▶ shard: Router (internal/route) ─▶ entry ─▶ its gate
//	other nodes ─▶ frontDoor ─┘         │                                │ starts, stops, takes mail back:
//	other nodes ◀─ internal/transport ◀─┘ (the short way)                │ internal/entities, guardian
//	control loop ─▶ handover.Machine ─▶ hosting, hand-over, states                ▼
//	   ▲  ▲                                                 guardian: parent of a shard's entities
//	   │  └ Order ◀── internal/coordinator ──▶ the user's Strategy, beside it all
//	   │                      ▲
//	   └ internal/directory: Table ◀── Keeper.Watch
//
// Mail passes under a shard's lock, on the goroutine that brings it. Mail to other nodes, to the
// dead letters and back to senders leaves when the lock is free. The control loop alone decides
// about shards. A file uses only declarations of the files below it; internal/doccheck has their
// order.

// Region is one node's part in a Type: it hosts some of the shards, and routes mail for entities
// of the others. Safe for concurrent use, but code that runs on a sender's goroutine (a codec, a
// mailbox's producer) must not call it.
type Region struct {
	node
	shards       shards
	registration registration
	coordination coordination
	loop         controller
	door         frontDoor
	refs         refs
	cleanUp      []func()
	done         chan struct{}
}

// errUnmade is the answer of a Region that Start did not make.
var errUnmade = fmt.Errorf("sharding: region: %w: nil or the zero value, must come from sharding.Start", lease.ErrInvalid)

func (r *Region) made() bool { return r != nil && r.system != nil }

// may checks the Region and ctx, for calls that take a context.
func (r *Region) may(ctx context.Context) error {
	if !r.made() {
		return errUnmade
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

// Type returns what the Region was started for.
func (r *Region) Type() Type { return r.typ }

// Tell sends msg to the entity id, wherever it runs, starting it if need be. It
// returns at once. msg may be an *actor.MessageEnvelope, with headers and the sender, which gets the
// entity's answer.
// What one goroutine sends to one entity stays in order.
//
// Errors: lease.ErrInvalid for a bad id, a nil message, or one that only an actor system
// sends, such as *actor.Started; ErrClosed. What can't be
// delivered otherwise goes to the dead letters and is counted (Info).
func (r *Region) Tell(id string, msg any) error {
	if sendable(msg) && r.direct(id, msg) {
		return nil
	}
	if err := r.check(id, msg); err != nil {
		return err
	}
	r.routeMail(id, msg)
	return nil
}

func (r *Region) check(id string, msg any) error {
	switch err := ValidateEntityID(id); {
	case !r.made():
		return errUnmade
	case err != nil:
		return err
	case !sendable(msg):
		return fmt.Errorf("message to %q: %w: %T, holds nothing, or what only an actor system sends", id, lease.ErrInvalid, msg)
	case r.over.Load():
		return r.closed()
	}
	return nil
}

// deliver is the way of every message of this node.
func (r *Region) deliver(id string, envelope any) {
	if !r.direct(id, envelope) {
		r.routeMail(id, envelope)
	}
}

// ask is deliver for a question. One that an active entity here has is not for cutOff.
func (r *Region) ask(id string, envelope *actor.MessageEnvelope) {
	if !r.direct(id, envelope) {
		r.shards.of(id).asked.Expect(r.system, envelope.Sender)
		r.routeMail(id, envelope)
	}
}

// routeMail is the way of a message that does not go to an active entity at once.
func (r *Region) routeMail(id string, envelope any) {
	s := r.shards.of(id)
	if s.elsewhere.Load() && s.forwardFast(id, envelope) {
		return
	}
	s.do(func() { s.accept(&mail{id, envelope}) })
}

// direct gives a message to an entity that is active here, without passing another
// mailbox; false if there is none, or mail waits that it could overtake.
func (r *Region) direct(id string, envelope any) bool {
	if r == nil || len(r.shards) == 0 { // Start made none
		return false
	}
	s := r.shards.of(id)
	return s.here.Load() && s.deliverFast(0, id, envelope)
}

// Ref returns a PID of the entity id that may be kept, given to actors of other
// nodes, not watched, and sent to, wherever the entity is, runs or not. From
// other nodes it carries what protoactor's remote does, their own Regions carry what
// package remoting knows as well. It works while this Region does, and the name of each
// id is kept until then, about 150 bytes. Those of one id are Equal. Errors: lease.ErrInvalid for a bad id, ErrClosed.
func (r *Region) Ref(id string) (*actor.PID, error) {
	if err := r.check(id, id); err != nil {
		return nil, err
	}
	return r.refs.ref(id), nil
}

// Drain moves all shards off this node and takes none until Undrain: for a rolling
// restart, or to find out whether the others can do without it. It returns when this node holds
// no shard, with ErrUndrained, or with ctx's error; then the node goes on draining. It goes on
// routing.
func (r *Region) Drain(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	drained, trace := make(chan error, 1), traces.Text(ctx)
	r.post(func() {
		r.loop.leaving.leaveTrace = trace
		r.loop.leaving.drain(drained)
	})
	return r.await(ctx, drained)
}

// Undrain ends what Drain began.
func (r *Region) Undrain() {
	if r.made() {
		r.post(func() {
			r.loop.leaving.asked = false
			r.loop.leaving.stay()
		})
	}
}

// Stop moves all shards off this node, for as long as one is handed over every 10 s,
// forwards what is left (WithLinger), and ends the Region. Entities that do not stop keep their shard, and
// it, up (WithOverdue). It returns when all that is done, or ctx's error with what it
// waits for; the Region goes on ending then. Stop can be called again. ActorSystem.Shutdown does the
// same within a second.
func (r *Region) Stop(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	trace := traces.Text(ctx)
	r.post(func() { r.loop.leaving.leaveTrace = trace })
	r.leaveForGood()
	return r.await(ctx, nil)
}

func (r *Region) leaveForGood() {
	r.post(func() {
		r.loop.leaving.asked, r.loop.leaving.stop = true, true
		r.loop.leaving.begin()
	})
}

// await waits for the end of the Region or an answer, or tells what it waits for.
func (r *Region) await(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sharding type %q still holds %d shards: %w", r.typ.Name, r.shards.info().Held, context.Cause(ctx))
	}
}

// Reconsider has the coordinator, wherever it is, ask the strategy again: for a
// strategy that asks elsewhere. It does so by itself once a second.
func (r *Region) Reconsider() {
	if r.made() {
		r.coordination.tell(&wire.Report{Type: r.names.Key, From: r.self})
	}
}

// Info returns a snapshot. It takes each shard's lock for a moment.
func (r *Region) Info() Info {
	if !r.made() {
		return Info{}
	}
	in := r.shards.info()
	r.coordination.with(func(co *coordinator.Coordinator) {
		for _, m := range co.Moves() {
			in.Moves = append(in.Moves, MoveInfo(m))
		}
	})
	return in
}

// tell tells of this node's part in the type.
func (r *Region) tell(_ context.Context, _ inquiry.Request, to *inquiry.Report) {
	in := r.Info()
	x := inquiry.Type{Group: in.Group, Type: in.Type, Shards: in.Shards, Entities: in.Entities, Waiting: in.Waiting,
		Draining: in.Draining, Holders: map[string]int{},
		Counters: map[string]int64{"dropped": in.Dropped, "undeliverable": in.Undeliverable, "unconfirmed": in.Unconfirmed, "relayed": in.Relayed,
			"unordered": in.Unordered, "overruns": in.Overruns, "crashes": in.Crashes, "passivated": in.Passivated, "handed off": in.HandedOff}}
	to.Draining = to.Draining || in.Draining
	for _, n := range in.Nodes {
		x.Holders[n.Incarnation] = n.Shards
	}
	for _, s := range in.Table {
		if s.Phase != "" {
			x.Own = append(x.Own, inquiry.Shard{N: s.Shard, Phase: s.Phase, Entities: s.Entities, Waiting: s.Waiting})
		}
	}
	for _, m := range in.Moves {
		x.Moves = append(x.Moves, inquiry.Move(m))
	}
	to.Types = append(to.Types, x)
}

// hostless is for how long no shard may have a host while all is well: a type that begins.
const hostless = 10 * time.Second

// Health is a check as health.Handler takes it. It fails, with a line for each
// reason, while this node is no member of the group (membership.Group.Health), while it
// is not registered for the type (ErrNotHosting), while no shard has had a host for ten seconds,
// while entities here have failed three times in a row before their first message and none works,
// and when the Region has ended (ErrClosed). It asks nothing of the store, and returns at once.
func (r *Region) Health(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	if r.over.Load() {
		return r.closed()
	}
	err := r.group.Health(ctx)
	if t, ok := r.registration.lease.Term(); !ok || !t.CheckAlive() {
		err = errors.Join(err, fmt.Errorf("%q is not registered: %w", r.registration.leaseName(), ErrNotHosting))
	}
	free := time.Duration(0) // since when no shard has had a host
	for _, s := range r.table.All() {
		if free = max(free, s.Free); s.Held {
			free = r.elapsed()
		}
	}
	if d := r.elapsed() - free; d > hostless {
		err = errors.Join(err, fmt.Errorf("for %v no shard has had a host: no node hosts the type, or all are drained", d.Round(time.Second)))
	}
	if r.crowd.fails.Load() {
		if n, _ := r.shards.futile(); n > 0 {
			err = errors.Join(err, fmt.Errorf("no entity works here, and %d have failed %d times or more before their first message", n, tries))
		}
	}
	if err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

// Ask sends msg to the entity id, wherever it runs, and waits for one answer of type
// R until ctx ends. Everything else is as with singleton.Ask, its errors included:
//   - if there was no answer in time, the text says what is known to have hindered it, such
//     as that no node hosts the shard, a store that is not reached, a link that broke, mail
//     that waits;
//   - hosting.ErrUnconfirmed, at once, if msg had been sent to the host of the entity's
//     shard when the link to that broke. It is not known whether msg was handled. Where
//     another host is known by then Ask waits on, for a minute at the most, as msg may have
//     been forwarded; and msg that could not be sent yet waits for the link, or for the next
//     host. An entity on this node is behind no link.
func Ask[R any](ctx context.Context, r *Region, id string, msg any) (answer R, err error) {
	if err := cmp.Or(r.may(ctx), r.check(id, msg)); err != nil {
		return answer, err
	}
	since := r.elapsed()
	send := func(envelope *actor.MessageEnvelope) { r.ask(id, envelope) }
	return asker.Ask[R](ctx, r.system, nil, send, msg, r.typ.Name, id, func() string { return r.why(id, since) })
}

// This part is what stands between this node and an entity, as far as this node knows:
// for callers of Ask that got no answer.

// why says what stood in the way of a question for an entity that was asked at the
// reading since of elapsed; empty if nothing is known to have.
func (r *Region) why(id string, since time.Duration) string {
	s, now := r.shards.of(id), r.elapsed()
	seat := r.table.Shard(s.number)
	var free, remembers string
	if !seat.Held {
		free = fmt.Sprintf("no node has been known to host shard %d for %v", s.number, (now - seat.Free).Round(time.Millisecond))
	}
	s.mu.RLock()
	waits, failure, broke, at := s.waits, error(nil), s.broke, s.brokeAt
	if s.last != nil {
		failure = s.last.rem.failure
	}
	s.mu.RUnlock()
	if failure != nil {
		remembers = fmt.Sprintf("the store of remembered entities: %.256s", failure)
	}
	if !seat.Held || broke != seat.Record.Owner.Address || at < since {
		broke = ""
	}
	return asker.Hindrance(r.system, r.keeper, seat.Record.Owner, broke, now-at, waits, free, remembers)
}
