package singleton

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Manager is one node's part in a singleton: it hosts the child, or forwards mail to the
// host. Safe for concurrent use.
type Manager struct {
	name   string
	system *actor.ActorSystem
	keeper *lease.Keeper
	claims
	set     settings
	owned   bool // it coordinates shards, which stop it: StopAll does not
	props   *actor.Props
	clock   store.Clock
	log     *zap.Logger
	metrics *instruments
	traces  *traces.Tracer
	outlet  *outlet.Outlet
	dir     *directory // nil if it is owned: what is part of something else gets no mail
	pid     *actor.PID

	status atomic.Pointer[snapshot]
	asked  asker.InFlight
	lost   atomic.Int64 // sent, and not known to have arrived when its link broke; grows when the manager has ended, too
	lifetime
}

// claims are the leases of a Manager.
type claims struct {
	lname string // of the lease
	lease lease.Lease
	own   *lease.Handle // made by Start, to be closed
	sign  *lease.Handle // tells where the host is, if the lease can't; made by Start, to be closed
}

// lifetime is how a Manager ends.
type lifetime struct {
	done    chan struct{}
	left    error          // the lease may stand; set before done is closed
	ops     sync.WaitGroup // calls to the lease under way
	life    context.Context
	endLife context.CancelFunc
	// stopTrace is the trace of the last caller of Stop or StopAll, as traces.Text.
	stopTrace atomic.Value
}

// Status is a snapshot of a manager.
type Status struct {
	Name  string
	Phase Phase
	// Token is the fencing token this node hosts under; 0 while it does not.
	Token lease.Token
	// Host is the holder of the lease; zero if none is known.
	Host lease.Owner
	// Differs says in what the host's settings are not this node's, though they should
	// be the same on every node (the message size, WithPreferred, WithPreference, and
	// whether there is a WithLeadership); empty if in nothing, or if the host does not say.
	Differs string
	// Refused says why this node does not talk to the host, whose version is too far from
	// this one's: ErrProtocol, or lease.ErrBadRecord for one that can't be read. Mail waits
	// as for a host that is not known. Nil if it does.
	Refused error
	// Lives counts the children that were started here.
	Lives int
	// Buffered messages wait for a host, or to be taken up by it. Dropped messages found the
	// buffer full, or were left when the manager ended. Undeliverable messages could not be
	// encoded, decoded or routed.
	Buffered, Dropped, Undeliverable int
	// Unconfirmed messages had been sent straight to the host when their link broke:
	// they are not known to have arrived.
	Unconfirmed int
	// Relayed messages were forwarded for others, each kept until it was taken up.
	Relayed int
	// Unordered counts moves after which mail went to the new host before all that went to
	// the old one was known to have arrived: a sender's messages may have changed places.
	Unordered int
	// WhyNot says why this node would not host, or take over; empty if it would, or does.
	WhyNot string
	// Trouble is what Health says of it after 30 s, from the first moment on; empty if nothing.
	Trouble string
	// Started is when the present child began, and StoppingSince when it was told to stop, by the
	// wall clock; zero if there is none, or it was not.
	Started, StoppingSince time.Time
}

// snapshot is what a manager says of itself, to users and to Health and Ask.
type snapshot struct {
	Status
	trouble
}

// named is lease.Name of a name that Start has checked.
func named(kind, name string) string {
	n, _ := lease.Name(kind, name)
	return n
}

// check is the beginning of the calls that a user may make of a nil or a zero Manager, or with
// no context.
func (m *Manager) check(ctx context.Context) error {
	if m == nil || m.system == nil {
		return fmt.Errorf("singleton: manager: %w: nil or the zero value, must come from singleton.Start", lease.ErrInvalid)
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("singleton %.64q: %w", m.name, err)
	}
	return nil
}

// Name returns the singleton's name.
func (m *Manager) Name() string { return m.name }

// PID is the front door: a message that is sent to it reaches the child, on the node that
// hosts, with its sender. It must not be handed to another actor system of the same process. A
// watcher of it hears of the end of this node's manager, and of no move nor crash of the child. A
// PoisonPill is a dead letter: Stop ends the manager. A Touch goes to the child, as all mail does: its
// answer comes once there is a host, and names the child.
func (m *Manager) PID() *actor.PID { return m.pid }

// Status returns a recent snapshot.
func (m *Manager) Status() Status {
	var s Status
	if last := m.status.Load(); last != nil {
		s = last.Status
		if err := m.unwell(0); err != nil {
			s.Trouble = err.Error()
		}
	}
	s.Unconfirmed = int(m.lost.Load()) // a link may break when nothing else happens any more
	return s
}

// Move hands the singleton over from this node, which must host it, to the node with the ID to
// (lease.Config.ID), or to the best candidate if to is empty: the child is stopped and its state
// goes along, as at any planned hand-over. It returns nil when the lease is the other node's. Calls
// take turns. A child that keeps failing moves, too.
//
// No move is made that this node would undo. With WithLeadership only the leader is a candidate
// while there is one: to move what is hosted by the leader, have another node lead. With
// WithPreferred or WithPreference a node that is less preferred than this one is none: drain this
// node (Drain).
//
// Errors: lease.ErrNotHeld, with the host, if this node does not host it; lease.ErrInvalid, with the
// candidates, for a node that is none, for a move that would be undone, a zero Manager or a nil ctx;
// lease.ErrUnsupported for a lease that can't be handed over; why no node took over, and the child
// goes on here, or why the hand-over failed on the way, and the lease elects; lease.ErrUnknown if
// the store did not say; and context.Cause(ctx): then a hand-over that had begun goes on.
func (m *Manager) Move(ctx context.Context, to string) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	return m.ask(&moveRequest{ctx: ctx, to: to, done: make(chan error, 1)})
}

// moveRequest asks for a hand-over of what is hosted here.
type moveRequest struct {
	ctx   context.Context
	to    string // the ID of the next host; empty: the best candidate
	drain bool   // the node is drained: what is not hosted here need not be moved
	done  chan error

	begun bool
	moved bool
	why   error // it was not, of late
}

// ask asks for a move, and waits for its end.
func (m *Manager) ask(r *moveRequest) (err error) {
	if !hasEnded(m) {
		m.tell(r)
	}
	select {
	case err = <-r.done:
	case <-m.done:
		if !r.drain {
			err = fmt.Errorf("%w: the manager has ended", lease.ErrNotHeld)
		}
	case <-r.ctx.Done():
		err = fmt.Errorf("is still %v: %w", m.Status().Phase, context.Cause(r.ctx))
	}
	if err != nil {
		err = fmt.Errorf("singleton %.64q: %w", m.name, err)
	}
	return err
}

// unwell says what has been wrong with m for longer than patience.
func (m *Manager) unwell(patience time.Duration) error {
	t, now := m.status.Load(), m.clock.Now().Mono
	s := t.Status
	// bad reports what has lasted since a reading of the clock for too long; 0 is not at all.
	bad := func(since time.Duration) (d time.Duration, is bool) {
		return (now - since).Round(time.Millisecond), since != 0 && now-since > patience
	}
	calls := func(what string, d time.Duration) error {
		return fmt.Errorf("is %v: %s since %s, for %v", s.Phase, what, time.Now().Add(-d).Format(time.RFC3339), d)
	}
	if d, is := bad(t.making); is {
		return calls("its Props have been making the child", d)
	}
	if trial := t.trial; t.futile >= tries && (!s.Phase.away() || t.resting && s.Host == lease.Owner{}) && (trial == nil || !trial.Used() && now-t.started < m.set.backoffMax) {
		return fmt.Errorf("is %v: its child failed %d times in a row before its first message, the last time with %s", s.Phase, t.futile, t.why)
	}
	if d, is := bad(t.following); is {
		return calls("its source of leadership has not returned from Follow", d)
	}
	if d, is := bad(t.stopping); is {
		return fmt.Errorf("is %v: for %v its child was told to stop and has not", s.Phase, d)
	}
	if s.Phase.away() && s.Refused != nil {
		return fmt.Errorf("is not reached: %w", s.Refused)
	}
	if d, is := bad(t.waiting); is {
		return fmt.Errorf("has had no host for %v, %d messages wait", d, s.Buffered)
	}
	return nil
}

// Stop ends the manager. A child that runs here is asked to stop (WithStop); its lease, and
// its state if it is hosting.Stateful, is handed over to another node that runs a manager,
// or released if none takes it. Mail that is still buffered, or that other nodes still send
// here, is forwarded to the new host for as long as WithLinger says; what is left then is dropped and
// counted (Status.Dropped), which is no error. A child that does not
// stop keeps the lease until it has (WithOverdue). Stop returns nil when all that is done,
// and can be called again. It waits for handlers that run: a handler calls it on another goroutine.
// ActorSystem.Shutdown stops all managers of the system within a second.
//
// Errors: context.Cause(ctx) if ctx ended before, with the phase that the manager is in; it
// goes on ending. lease.ErrInvalid for a zero Manager or a nil ctx. If the manager has ended
// and its lease is not known to be released, because the store does not answer, the error
// names the lease and wraps the reason: the Keeper goes on trying until it is closed, and
// then the lease is left to expire.
func (m *Manager) Stop(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	m.stopFor(ctx)
	return m.wait(ctx)
}

func (m *Manager) stopFor(ctx context.Context) {
	m.stopTrace.Store(traces.Text(ctx))
	m.tell(stop)
}

// wait waits until the manager has ended.
func (m *Manager) wait(ctx context.Context) error {
	if hasEnded(m) { // ctx may be done as well
		return m.left
	}
	select {
	case <-m.done:
		return m.left
	case <-ctx.Done():
		return fmt.Errorf("singleton %q is still %v: %w", m.name, m.Status().Phase, context.Cause(ctx))
	}
}

// Done is closed when the manager has ended. Its lease is released then, or Stop returns an
// error that names it.
func (m *Manager) Done() <-chan struct{} {
	if m.done == nil { // a zero Manager: nothing will ever end
		return ended.Done()
	}
	return m.done
}

func hasEnded(m *Manager) bool {
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

// ended is the context of what does not run.
var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lease.ErrNotHeld)
	return ctx
}()

// tell posts to the actor.
func (m *Manager) tell(msg any) {
	outlet.Tell(m.system, m.pid, &told{msg})
}

// told is what a manager tells its own actor: it passes the door.
type told struct{ what any }

// core is what the parts of a manager share: its machine, and the turns of its actor.
type core struct {
	*Manager
	machine
	fire func(event)   // feeds the machine, and carries its effects out
	ctx  actor.Context // of the message being handled
	over atomic.Bool   // the actor has ended

	known trouble // what stands between this node and the singleton
}

// command runs in a turn of the actor.
type command func()

// transfers is the lease as one that can be handed over; nil if it can't.
func (c *core) transfers() lease.TransferLease {
	l, _ := lease.As[lease.TransferLease](c.lease)
	return l
}

// post runs f in a turn of the actor, unless the actor has ended. Any goroutine may call it.
func (c *core) post(f func()) { c.send(command(f)) }

// send sends to the actor from anywhere, until it has ended.
func (c *core) send(msg any) {
	if !c.over.Load() {
		c.tell(msg)
	}
}

// async runs f on a goroutine of its own, and the function that f returns in a turn of the actor.
func (c *core) async(f func() func()) { c.ops.Go(func() { c.post(f()) }) }

// later sets an alarm whose function runs in a turn of the actor.
func (c *core) later(a *actors.Alarm, d time.Duration, f func()) { a.Set(c.clock, c.post, d, f) }

func (c *core) now() time.Duration { return c.clock.Now().Mono }

func (c *core) event(e Event) {
	e.Singleton = c.name
	why := e.Reason
	if e.Panic != nil {
		why = fmt.Errorf("panic: %v", e.Panic)
	}
	c.keeper.Journal().Add(journal.Event{At: time.Unix(0, c.clock.Now().Wall), Kind: e.Kind.String(), Name: nameOf(c.Manager),
		Token: uint64(e.Token), Peer: e.Peer.ID, Took: e.After, Why: why})
	c.outlet.Publish(e)
}

// coldStart tells what became of a state that is lost, and why.
func (c *core) coldStart(what string, token lease.Token, why error) {
	c.log.Warn(what, zap.Error(why))
	c.event(Event{Kind: ColdStart, Token: token, Reason: why})
}

// nameOf is the name of a manager's lease.
func nameOf(m *Manager) string {
	if h, ok := lease.As[*lease.Handle](m.lease); ok {
		return h.Name()
	}
	return m.lname
}

// try runs users' code. A panic is logged.
func (c *core) try(what string, f func()) {
	if err := boundary.Contained(f); err != nil {
		c.log.Error(what+" failed", zap.Error(err))
	}
}

// preferring returns what compares nodes by their IDs: less than 0 if a is preferred to b, by what is
// known of them now.
func (c *core) preferring() func(a, b string) int {
	if c.set.group != nil {
		members := c.set.group.Members()
		labels := func(id string) map[string]string {
			if id == c.ownID() {
				return c.set.group.Labels() // also while this node is no member
			}
			m, _ := members.Find(id)
			return m.Labels
		}
		return func(a, b string) int { return c.set.prefer.Compare(labels(a), labels(b)) }
	}
	place := func(id string) int {
		if i := slices.Index(c.set.preferred, id); i >= 0 {
			return i
		}
		return len(c.set.preferred)
	}
	return func(a, b string) int { return place(a) - place(b) }
}

// rank is how many nodes are preferred to this one.
func (c *core) rank() (n int) {
	others := slices.Clone(c.set.preferred)
	if c.set.group != nil {
		for _, m := range c.set.group.Members().Members {
			if !m.Leaving {
				others = append(others, m.ID)
			}
		}
	}
	compare := c.preferring()
	for _, id := range others {
		if compare(id, c.ownID()) < 0 {
			n++
		}
	}
	return n
}

func (m *Manager) ownID() string { return m.keeper.Owner().ID }

// newsWithin is how long it takes, as a rule, until other nodes know of another host: where the
// store can watch they learn it at once.
func (c *core) newsWithin() time.Duration {
	if c.dir == nil {
		return 0
	}
	return c.keeper.LookEvery()
}

// recordName is that of the record which names the host.
func (m *Manager) recordName() string {
	if m.sign != nil {
		return m.sign.Name()
	}
	return nameOf(m)
}
