package singleton

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/gate"
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
//   - no host is known for 30 s. Where the records of the lease can't be followed (WithLease,
//     or a store that neither watches nor lists) that is known only while messages wait for a
//     host.
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
		for _, m := range managersOf(system) {
			if k := m.keeper; k != nil && !keepers[k] {
				keepers[k] = true
				if err := k.Setback(); err != nil {
					wrong = append(wrong, err)
				}
			}
			if err := m.unwell(); err != nil {
				wrong = append(wrong, fmt.Errorf("singleton %.64q %w", m.Name(), err))
			}
		}
		return boundedJoin(wrong)
	}
}

// unwell says what is wrong with m.
func (m *Manager) unwell() error {
	s, t, now := m.Status(), m.trouble.Load(), m.clock.Now().Mono
	// bad reports what has lasted since a reading of the clock for too long; 0 is not at all.
	bad := func(since time.Duration) (d time.Duration, is bool) {
		return (now - since).Round(time.Millisecond), since != 0 && now-since > badAfter
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

// away reports whether the singleton is not hosted here in p. Where it is, that counts, whatever is
// known of the record.
func (p Phase) away() bool { return p <= Adopting || p == Releasing || p == Closed }

// trouble is what stands between this node and the singleton, as far as this node knows.
// Errors of Ask say it.
type trouble struct {
	hostless time.Duration // since when mail can go nowhere; 0: it can
	store    string        // why the lease was not acquired, or its holder not looked up, at the last try
	broke    string        // the address of the host whose link broke last
	brokeAt  time.Duration

	futile  int    // children in a row that failed before their first message
	why     string // the last did
	trial   *gate.Gate
	resting bool
	started time.Duration // of the present child, if there is one

	// For Health, since when it lasts; 0: it does not.
	making    time.Duration // Props that make a child have not returned
	following time.Duration // nor has Follow of a source of leadership
	stopping  time.Duration // the child was told to stop
	waiting   time.Duration // there is no host, or none is known and mail waits for it
}

// why says what stood in the way of a question that was asked at the clock's reading since;
// empty if nothing is known to have.
func (m *Manager) why(since time.Duration) string {
	t, s, now := *m.trouble.Load(), m.Status(), m.clock.Now().Mono
	var all []string
	if t.hostless != 0 {
		what := "no host has been known for"
		if s.Host != (lease.Owner{}) {
			what = "mail has not gone to the host for"
		}
		all = append(all, fmt.Sprint(what, " ", (now-t.hostless).Round(time.Millisecond)))
	}
	if s.Refused != nil {
		all = append(all, "the host is not talked to: "+s.Refused.Error())
	}
	if t.store != "" {
		all = append(all, "the store: "+t.store)
	} else if m.keeper != nil { // the first attempt may still be under way
		if in := m.keeper.Info(); in.Failure != nil {
			all = append(all, fmt.Sprintf("the store has not been reached since %v: %.256s", in.Since.Format(time.RFC3339), in.Failure))
		}
	}
	if t.brokeAt < since {
		t.broke = ""
	}
	own := lease.Owner{Address: m.pid.Address}
	if m.keeper != nil {
		own = m.keeper.Owner()
	}
	if why := asker.Unreached(m.system, own, s.Host, t.broke, now-t.brokeAt); why != "" {
		all = append(all, why)
	}
	if s.Buffered > 0 {
		all = append(all, fmt.Sprintf("%d messages wait here", s.Buffered))
	}
	return strings.Join(all, ", ")
}

// timeTrouble notes since when what Health tells lasts.
func (c *controller) timeTrouble(s Status) {
	now := c.now()
	c.known.futile, c.known.trial, c.known.started, c.known.resting = c.futile, c.proxy.gate, c.started, c.resting
	since := func(at *time.Duration, lasts bool) {
		if !lasts {
			*at = 0
		} else if *at == 0 {
			*at = now
		}
	}
	since(&c.known.making, c.making != nil)
	since(&c.known.following, c.following)
	since(&c.known.stopping, s.Phase == HandingOver || s.Phase == Yielding || s.Phase == Stopping)
	// A host without this package announces nothing.
	since(&c.known.waiting, s.Phase.away() && s.Host == (lease.Owner{}) && (s.Buffered > 0 || c.dir != nil && c.sign == nil))
}

// tellTrouble makes what is known of it visible.
func (c *controller) tellTrouble() {
	t := c.known
	t.hostless = c.hostlessAt
	if *c.trouble.Load() != t {
		c.trouble.Store(&t)
	}
}

// storeSaid notes how the store answered; that the manager ends tells nothing.
func (c *controller) storeSaid(err error) {
	switch {
	case err == nil:
		c.known.store = ""
	case c.life.Err() == nil:
		c.known.store = fmt.Sprintf("%.256s", err.Error())
	}
}
