package singleton

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrNameInUse: this actor system runs a singleton of that name already.
var ErrNameInUse = errors.New("singleton name in use on this actor system")

// Start runs a manager for the singleton name on this node, and returns at once. Of all
// nodes that do so, the one that holds the lease "singleton/<name>" (escaped) hosts: it runs
// a child made from props.
//
// Metrics go where the Keeper's go, and so do spans of hand-overs: holdfast.handover on the node that
// gives the singleton up, and holdfast.takeover, linked to it, on the next.
//
// Props make a child on a goroutine of their own, outside the lease: what needs the lease
// belongs into Started. Props that panic are tried again after the pause of WithBackoff
// (StartFailed). When three children in a row have failed before their first message (by a panic,
// or by stopping though mail waits), another node that would take over does so at once. This one
// goes last then for about a second, then 2, 4 and so on up to a minute, until a child works here.
//
// Props that have not returned after 30 s, or WithStop's time after the manager was stopped, are
// given up: the lease is released, so that another node can host, and this node does not host
// until they have returned. A child that they make after that is stopped and gets no message. On
// a loss of the lease they are given up at once.
//
// Errors: ErrNameInUse; lease.ErrNameInUse if the Keeper's lease of that name is taken;
// lease.ErrInvalid for a bad name or option, a nil system, props or Keeper, a *lease.Handle
// of another Keeper, if the lease's metadata has a key of the manager's own, and if the Keeper's
// address is not the system's: start remote first, then make the Keeper with
// lease.Config.Address = system.Address(). (A Keeper without an address goes with a system without
// remote.) lease.ErrUnsupported for a store that can neither watch nor list.
func Start(system *actor.ActorSystem, keeper *lease.Keeper, name string, props *actor.Props, opts ...Option) (*Manager, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("singleton %.64q: %w: %s", name, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case system == nil:
		return nil, invalid("system is nil")
	case props == nil:
		return nil, invalid("props is nil")
	case keeper == nil:
		return nil, invalid("keeper is nil")
	}
	set := defaults()
	if err := input.Apply(&set, &set.missing, lease.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("singleton %.64q: %w", name, err)
	}
	if err := set.complete(name, keeper); err != nil {
		return nil, err
	}
	lname, err := lease.Name("singleton", name)
	if err != nil {
		return nil, err
	}
	if err := actors.CheckAddress(system, keeper.Owner().Address); err != nil {
		return nil, invalid("%v", err)
	}
	m := &Manager{name: name, pid: system.NewLocalPID(named("holdfast/singleton", name)), claims: claims{lname: lname, lease: set.lease}, system: system, keeper: keeper,
		set: set, props: props, traces: traces.New(keeper.TracerProvider(), "singleton"),
		clock: keeper.Clock(), outlet: outlet.Of(system), lifetime: lifetime{done: make(chan struct{})}}
	m.log = set.logger.With(zap.String("singleton", name))
	m.life, m.endLife = context.WithCancel(context.Background())
	if h, ok := lease.As[*lease.Handle](set.lease); ok {
		of, coordinates := strings.CutPrefix(name, "sharding/")
		m.owned = coordinates && h.Name() == "coordinator/"+of
	}
	m.status.Store(&snapshot{Status: Status{Name: name}})

	reg := registryOf(system)
	if m.metrics, err = newInstruments(keeper.MeterProvider(), m.ownID()); err == nil {
		err = m.outlet.Measure(keeper.MeterProvider())
	}
	if err != nil {
		return nil, fmt.Errorf("singleton %.64q: metrics: %w", name, err)
	}
	desk := inquiry.Of(system)
	desk.Keep(keeper)
	desk.Tell(registryID, reg.report)
	if !reg.add(m) {
		return nil, fmt.Errorf("singleton %.64q: %w", name, ErrNameInUse)
	}
	if err := m.launch(reg); err != nil {
		for _, h := range []*lease.Handle{m.own, m.sign} {
			if h != nil {
				_ = h.Close(context.Background()) // never used: nothing to release
			}
		}
		reg.remove(m)
		m.endLife()
		close(m.done)
		return nil, fmt.Errorf("singleton %.64q: %w", name, err)
	}
	return m, nil
}

// launch makes the lease and spawns the actor.
func (m *Manager) launch(reg *registry) error {
	var err error
	if m.lease == nil {
		if m.own, err = m.keeper.Lease(m.lname, m.set.leaseOptions...); err == nil {
			m.lease, err = m.own, m.own.Describe(m.about())
		}
	} else if _, ok := lease.As[*lease.Handle](m.lease); !ok {
		m.sign, err = m.keeper.Lease(named("host", m.name), lease.WithMetadata(m.about()))
	}
	if err == nil && !m.owned {
		err = reg.join(m)
	}
	if err != nil {
		return err
	}
	reply.Start(m.system)
	c := newController(m)
	_, err = m.system.Root.SpawnNamed(actor.PropsFromProducer(
		func() actor.Actor { return c },
		actor.WithSupervisor(stopFailing(func(reason any) { c.child.crash = reason })),
		actor.WithMailbox(func() actor.Mailbox {
			c.door.inner = actor.Unbounded()()
			return &deadLetterMailbox{Mailbox: c.door.inner, door: c.door}
		}),
	), m.pid.Id)
	if err != nil {
		err = fmt.Errorf("actor %q: %w", m.pid.Id, err)
	}
	return err
}

// Ask sends msg to the singleton, on the node that hosts it, and waits for one answer of type
// R until ctx ends; without a deadline in ctx, for as long as that takes. While there is no
// host, msg waits in the proxy's buffer. If it still waits there, or in that of another
// node, when ctx's deadline has passed, it is not delivered any more. msg is sent once: if
// there is no answer, it is not known whether it was handled.
//
// msg may be an *actor.MessageEnvelope, to send headers; its sender is replaced.
//
// Errors (errors.Is):
//   - context.Cause(ctx), if there was no answer before ctx ended; the text says what is
//     known to have hindered it: no host, a store that does not answer, a link that
//     broke, mail that waits;
//   - hosting.ErrUnconfirmed, at once, if msg had been sent to the host when the link to it
//     broke. Ask again if handling msg twice does no harm. Where another host is known by
//     then Ask waits on, for a minute at the most, as msg may have been forwarded; and msg
//     that could not be sent yet waits for the link, or for the next host. What a host has
//     forwarded while its own link held is waited for until ctx ends: this node does not
//     know by which links it went on;
//   - hosting.ErrUndeliverable: the proxy, here or at the host, could not hand msg over; at once
//     if the buffer is full, and the text says what the mail in it waits for;
//   - hosting.ErrUnexpectedAnswer: the answer is no R, and the text says what it is;
//   - an answer that is an error, and no R, as it is;
//   - lease.ErrInvalid for a nil Manager or message, and for protoactor's own
//     messages, such as a PoisonPill, that no actor answers.
//
// Later answers to the same msg, and those that come after Ask returned, are dead
// letters. Safe for concurrent use. It blocks its goroutine: an actor that must go
// on meanwhile calls it from another one, and tells itself what came of it.
func Ask[R any](ctx context.Context, m *Manager, msg any) (answer R, err error) {
	if err := m.check(ctx); err != nil {
		return answer, err
	}
	since := m.clock.Now().Mono
	send := func(e *actor.MessageEnvelope) { m.system.Root.Send(m.PID(), e) }
	return asker.Ask[R](ctx, m.system, &m.asked, send, msg, "singleton", m.name, func() string { return m.why(since) })
}
