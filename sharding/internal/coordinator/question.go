package coordinator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/placement"
)

// This file asks the user's strategy, which may take its time, panic, or never return.
// It runs on a goroutine of its own, once at a time on a node: a call that hangs is
// left behind, and no other is made before it has returned.

// answersWithin is how long a strategy may take.
const answersWithin = 2 * time.Second

// errNoAnswer is why a strategy is not waited for any longer.
var errNoAnswer = fmt.Errorf("no answer within %v", answersWithin)

var errStillAsked = errors.New("it has not answered an earlier coordinator yet")

// question is what the strategy was asked, and until when it is waited for.
type question struct {
	view    placement.View
	version uint64 // of the Table
	until   time.Duration
}

// ask has the strategy asked.
func (c *Coordinator) ask(v placement.View, version uint64, now time.Duration) {
	if !c.env.Asked.CompareAndSwap(false, true) {
		c.order(v, c.without(v, errStillAsked))
		return
	}
	q := &question{v, version, now + answersWithin}
	c.question = q
	st := c.env.Strategy
	boundary.Aside(func() ([]string, error) { return target(st, v) }, func(target []string, err error) {
		c.env.Asked.Store(false)
		c.Tell(func() { c.onAnswer(q, target, err) })
	})
}

// onAnswer decides by what the strategy said, if that did not come too late.
func (c *Coordinator) onAnswer(q *question, target []string, err error) {
	if q != c.question {
		return
	}
	late, again := c.now() >= q.until, c.changed
	c.question, c.changed = nil, false
	switch {
	case !c.inCharge():
		return
	case err != nil:
		v := c.ledger.view(c.known())
		c.order(v, c.without(v, err))
	case late:
		again = true
	default:
		c.failing = false
		c.follow(q, target)
	}
	if again {
		c.soon(0)
	}
}

// follow gives the orders that lead to what the strategy said, if there may be any.
func (c *Coordinator) follow(q *question, target []string) {
	if c.unchanged() && slices.Equal(target, c.still.target) {
		return
	}
	d, version := c.order(q.view, target)
	none := len(d.orders) == 0 && d.wake == 0 && !c.ledger.waits()
	if none && version == q.version && reflect.DeepEqual(d.hosts, q.view.Hosts) {
		c.still = &still{q.view, version, target}
	}
}

// target asks a strategy, and returns incarnations.
func target(st placement.Strategy, v placement.View) ([]string, error) {
	asked := placement.View{Hosts: slices.Clone(v.Hosts), Owners: slices.Clone(v.Owners)} // it may write to them
	target := slices.Clone(st.Target(asked))
	if len(target) != len(v.Owners) {
		return nil, fmt.Errorf("it returned %d targets for %d shards", len(target), len(v.Owners))
	}
	incarnations := map[string]string{"": ""}
	for _, h := range v.Hosts {
		incarnations[h.ID], incarnations[h.Incarnation] = h.Incarnation, h.Incarnation
	}
	for shard, name := range target {
		inc, ok := incarnations[name]
		switch {
		case ok:
			target[shard] = inc
		case name != v.Owners[shard]:
			return nil, fmt.Errorf("shard %d: there is no host %q", shard, boundary.Cut(name))
		}
	}
	return target, nil
}

// without is the target where the strategy has none: what has a host that stays is left
// there, and the rest goes where Balanced puts it, so that no shard is down because the
// strategy has no answer. It reports once each time that the strategy begins to fail.
func (c *Coordinator) without(v placement.View, why error) []string {
	if !c.failing {
		c.failing = true
		c.log.Error("the strategy failed: shards without a host are spread evenly, no other is moved", zap.Error(why))
		c.emit(StrategyFailed, why)
	}
	target, hosts := placement.Balanced{}.Target(v), hostsOf(v)
	for i, owner := range v.Owners {
		if owner != "" && !hosts[owner].Leaving {
			target[i] = owner
		}
	}
	return target
}
