package singleton

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/lease"
)

// badAfter is for how long a child that was told to stop, or Props that make one, may go on, and
// a singleton may have no host anywhere, before that is a failure. It is more than a usual TTL,
// after which another node takes over from one that crashed.
const badAfter = 30 * time.Second

// Health makes a check of all singletons that run or are reached through system, as
// health.Handler takes it. It fails while, of any of them,
//
//   - a child was told to stop and has not for 30 s;
//   - this node hosts it, and the last three or more children failed before their first message:
//     nothing serves;
//   - its host is of a version that this node does not talk to (ErrProtocol);
//   - users' code that makes a child (its Props), or follows the leader
//     (Leadership.Follow), has not returned for 30 s: the error says what, and since when;
//   - no host is known for 30 s. Where the host has to announce itself (WithLease) that is known
//     only while messages wait for a host.
//
// It fails, too, while the store's history has gone back (Keeper.Setback): nothing is
// hosted then.
//
// The error has a line for each singleton, with its name, some of them if they are
// many. The check asks nothing of the store, returns at once and may be called concurrently.
// With a nil system it always fails with lease.ErrInvalid.
func Health(system *actor.ActorSystem) func(context.Context) error {
	if system == nil {
		return func(context.Context) error { return fmt.Errorf("singleton.Health: system: %w: nil", lease.ErrInvalid) }
	}
	return func(context.Context) error {
		var wrong []error
		keepers := map[*lease.Keeper]bool{}
		for _, m := range registryOf(system).running() {
			if k := m.keeper; !keepers[k] {
				keepers[k] = true
				if err := k.Setback(); err != nil {
					wrong = append(wrong, err)
				}
			}
			if err := m.unwell(badAfter); err != nil {
				wrong = append(wrong, fmt.Errorf("singleton %.64q %w", m.Name(), err))
			}
		}
		return boundedJoin(wrong)
	}
}

// report tells of the singletons, but of the coordinators of sharded types, and moves one if that is
// asked for.
func (r *registry) report(_ context.Context, q inquiry.Request, to *inquiry.Report) {
	to.Draining = to.Draining || r.drained.Load()
	for _, m := range r.running() {
		if m.owned {
			continue
		}
		s := m.Status()
		x := inquiry.Singleton{Name: m.name, Lease: nameOf(m), Phase: s.Phase.String(), Hosts: s.Phase.hosts(), Buffered: s.Buffered,
			Started: s.Started, Stopping: s.StoppingSince, Trouble: s.Trouble, WhyNot: s.WhyNot, Unwell: s.Trouble != "" && m.unwell(badAfter) != nil,
			Counters: map[string]int64{"lives": int64(s.Lives), "dropped": int64(s.Dropped), "undeliverable": int64(s.Undeliverable),
				"unconfirmed": int64(s.Unconfirmed), "relayed": int64(s.Relayed), "unordered": int64(s.Unordered)}}
		to.Singletons = append(to.Singletons, x)
		if do := q.Do; do != nil && do.Name == x.Lease && (do.Action == "move" || do.Action == "release") {
			inquiry.Of(m.system).Begin(q, to, func(ctx context.Context) error { return m.Move(ctx, do.To) })
		}
	}
}

// why says what stood in the way of a question that was asked at the clock's reading since;
// empty if nothing is known to have.
func (m *Manager) why(since time.Duration) string {
	t, now := *m.status.Load(), m.clock.Now().Mono
	var hostless, refused, store string
	if t.hostless != 0 {
		hostless = "no host has been known for"
		if t.Host != (lease.Owner{}) {
			hostless = "mail has not gone to the host for"
		}
		hostless = fmt.Sprint(hostless, " ", (now - t.hostless).Round(time.Millisecond))
	}
	if t.Refused != nil {
		refused = "the host is not talked to: " + t.Refused.Error()
	}
	if t.store != "" {
		store = "the store: " + t.store
	}
	if t.brokeAt < since {
		t.broke = ""
	}
	return asker.Hindrance(m.system, m.keeper, t.Host, t.broke, now-t.brokeAt, t.Buffered, hostless, refused, store)
}

// timeTrouble notes since when what Health tells lasts.
func (c *core) timeTrouble(s Status, trial *gate.Gate, making, following bool) {
	now := c.now()
	c.known.trial, c.known.resting = trial, c.resting
	since := func(at *time.Duration, lasts bool) {
		if !lasts {
			*at = 0
		} else if *at == 0 {
			*at = now
		}
	}
	since(&c.known.making, making)
	since(&c.known.following, following)
	since(&c.known.stopping, s.Phase == HandingOver || s.Phase == Yielding || s.Phase == Stopping)
	// A host without this package announces nothing.
	since(&c.known.waiting, s.Phase.away() && s.Host == (lease.Owner{}) && (s.Buffered > 0 || c.dir != nil && c.sign == nil))
}

// timeStatus says since when what s says of the child, if there is one, is so.
func (c *core) timeStatus(s *Status, child bool) {
	now, old := time.Unix(0, c.clock.Now().Wall), c.status.Load()
	if child {
		s.Started = cmp.Or(old.Started, now)
	}
	switch s.Phase {
	case HandingOver, Yielding, Stopping:
		s.StoppingSince = cmp.Or(old.StoppingSince, now)
	}
}

// whyNot says why this node would not host.
func (c *core) whyNot() string {
	switch {
	case !c.phase.away():
		return ""
	case c.set.proxyOnly:
		return "it only forwards"
	case c.closing():
		return "it is being stopped"
	case c.drained:
		return "the node is drained"
	case c.stuck:
		return "its Props were given up and have not returned"
	case c.resting:
		return "its child failed here: other nodes go first for a while"
	case !c.wanted:
		return "its source of leadership names another node, or none"
	}
	return ""
}

// storeSaid notes how the store answered; that the manager ends tells nothing.
func (c *core) storeSaid(err error) {
	switch {
	case err == nil:
		c.known.store = ""
	case c.life.Err() == nil:
		c.known.store = fmt.Sprintf("%.256s", err.Error())
	}
}

// meter tells what changed from one status to the next.
func (c *core) meter(old, now Status) {
	i := c.metrics
	add := func(to meters.Counter, d int) {
		if d != 0 {
			to.Add(int64(d))
		}
	}
	add(i.buffered, now.Buffered-old.Buffered)
	add(i.hosted, one(now.Phase.hosts())-one(old.Phase.hosts()))
	add(i.dropped, now.Dropped-old.Dropped)
	add(i.undeliverable, now.Undeliverable-old.Undeliverable)
	add(i.unconfirmed, now.Unconfirmed-old.Unconfirmed)
	add(i.relayed, now.Relayed-old.Relayed)
	add(i.unordered, now.Unordered-old.Unordered)
	if now.Unordered > old.Unordered {
		c.log.Warn("mail went on before all that was sent the old way was known to have arrived",
			boundary.Do("look at the links and the load of the nodes that it was on"))
		c.event(Event{Kind: OrderNotKept, Token: now.Token})
	}
}

// meterHost measures for how long there was no host.
func (c *core) meterHost(routable bool) {
	switch {
	case routable && c.known.hostless != 0:
		d := c.clock.Now().Mono - c.known.hostless + time.Nanosecond
		c.known.hostless = 0
		c.metrics.hostless.Record(d)
	case !routable && c.known.hostless == 0:
		c.known.hostless = c.clock.Now().Mono
	}
}
