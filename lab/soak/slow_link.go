//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of slowlink.
const (
	slowNodes   = 3 // two host, the last sends
	slowShards  = 40
	slowSize    = 400
	slowAsks    = 20.0
	slowState   = 1 << 10
	slowLarge   = 20 << 20
	slowLead    = 3 * time.Second // load before the move
	slowAfter   = 15 * time.Second
	slowRecover = 5 * time.Second // after healing, until answers are as they should be
	slowAnswer  = time.Second     // p99 of asks from then on
)

// slowCase is one kind of link, and a load that is more than it carries.
type slowCase struct {
	name  string
	shape lab.Shape
	rate  float64 // messages a second
	large int     // bytes of the state of one entity; 0: as all others
}

var slowCases = []slowCase{
	{"open", lab.Shape{}, 1000, 0}, // a reference: here every state must arrive
	{"narrow", lab.Shape{Rate: 50_000}, 1000, 0},
	{"far", lab.Shape{Rate: 1 << 20, Delay: crowdDelay, Jitter: crowdJitter}, 4000, slowLarge},
}

// slowLink moves entities with state over links that carry less than what is sent, and
// looks for what was not counted.
func slowLink(ctx context.Context, args []string, r *report) error {
	var entities int
	var length time.Duration
	var only string
	var seed uint64
	if err := flags("slowlink", args, func(f *flag.FlagSet) {
		f.IntVar(&entities, "entities", 10_000, "entities, each with a state of 1 KiB")
		f.DurationVar(&length, "for", 30*time.Second, "how long links are slow")
		f.StringVar(&only, "only", "", "open: not slow at all, narrow: 50 kB/s, or far: 1 MiB/s and 50 to 300 ms; empty: one after the other")
		f.Uint64Var(&seed, "seed", 0, "of the jitter; 0: any")
	}); err != nil {
		return err
	}
	if entities < slowShards || entities > 100_000 || length < 2*slowLead || only != "" && !slices.ContainsFunc(slowCases, func(s slowCase) bool { return s.name == only }) {
		return fmt.Errorf("slowlink: -entities must be %d to 100000, -for at least %v, -only open, narrow or far", slowShards, 2*slowLead)
	}
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	r.printf("       seed %d", seed)
	for _, c := range slowCases {
		if only == "" || only == c.name {
			if err := c.run(ctx, b, r, entities, length, seed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s slowCase) run(ctx context.Context, b *bed, r *report, entities int, length time.Duration, seed uint64) error {
	each := entities / slowShards
	room := int(2*(s.rate+slowAsks)*(length+slowAfter).Seconds()) + 10*entities + 100_000
	c, err := newMailCluster(ctx, b, room, seed, mailSettings{Nodes: slowNodes, Hosts: slowNodes - 1, Shards: slowShards, Each: each,
		Size: slowSize, State: slowState, Large: s.large})
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.gather(); err != nil {
		return err
	}
	before, err := c.counted()
	if err != nil {
		return err
	}
	c.links.Shape(s.shape)
	if _, err := c.order(2, mailOrder{Do: mailLoad, Rate: s.rate, Asks: slowAsks}, patience); err != nil {
		return err
	}
	if err := c.pause(slowLead); err != nil {
		return err
	}
	moved := lab.Now()
	if err := c.swap(); err != nil {
		return err
	}
	if err := c.pause(length - slowLead); err != nil {
		return err
	}
	c.links.Shape(lab.Shape{})
	healed := span{from: lab.Now() + slowRecover, to: lab.Now() + slowAfter}
	if err := c.pause(slowAfter); err != nil {
		return err
	}
	sent, err := c.quiet(3*time.Second, time.Minute)
	if err != nil {
		return err
	}
	after, err := c.counted()
	if err != nil {
		return err
	}
	for k, n := range before {
		after[k] -= n
	}
	drain, drained := c.nodes[0].Find(func(m mailSaid) bool { return m.What == mailDrain && m.At >= moved })
	if err := c.wake(); err != nil {
		return err
	}
	es, err := c.entries()
	if err != nil {
		return err
	}
	r.printf("       %s: %d entities with a state of %d bytes; %.0f messages of %d bytes a second over %d bytes/s, %v and up to %v more, for %v", s.name,
		each*slowShards, slowState, s.rate, slowSize, s.shape.Rate, s.shape.Delay, s.shape.Jitter, length)
	if drained {
		r.printf("       %s: the node was drained after %v%s", s.name, drain.Took.Round(time.Millisecond), told(drain.Err))
	} else {
		r.printf("       %s: the node was not drained", s.name)
	}
	c.judgeSlow(r, s.name+": ", sent, after, es)
	judgeCold(r, s.name+": ", moved, es)
	w := window{span: healed}
	r.spread(s.name+": asks from 5 s after healing", w.asks(es))
	r.within(s.name+": p99 of asks from 5 s after healing on", lab.Percentile(w.asks(es), 99), slowAnswer)
	c.judgeMemory(r, s.name+": ")
	return nil
}

// gather has all entities run on the first node.
func (c *mailCluster) gather() error {
	s, err := c.order(1, mailOrder{Do: mailDrain}, patience)
	if err == nil && s.Err != "" {
		err = errors.New(s.Err)
	}
	if err == nil {
		_, err = c.order(2, mailOrder{Do: mailSweep}, 2*patience)
	}
	return err
}

// wake has all entities run, wherever they are.
func (c *mailCluster) wake() error {
	_, err := c.order(2, mailOrder{Do: mailSweep}, 4*patience)
	return err
}

// judgeSlow holds what was sent to what was handled, and to what the product says that
// it gave up.
func (c *mailCluster) judgeSlow(r *report, what string, sent map[uint32]uint64, counted map[string]int64, es []entry) {
	m := lab.JudgeMail(sent, handlings(es))
	r.printf("       %s%d sent, %d handled, %d not handled, %d doubled (one came %d times), %d out of order", what, m.Sent, m.Handled, m.Lost, m.Doubled,
		m.Most, m.Reordered)
	r.printf("       %scounted by the product: %s", what, countedText(counted))
	r.atMost(what+"messages handled twice", float64(m.Doubled), 0, "")
	r.atMost(what+"messages lost and not counted", float64(int64(m.Lost)-givenUp(counted)), 0, "")
	r.atMost(what+"messages counted as given up beyond those that were", float64(givenUp(counted)-int64(m.Lost)), 0, "")
}

// judgeCold holds the entities that began without their state since a time to the
// events that told so.
func judgeCold(r *report, what string, since time.Duration, es []entry) {
	warm, cold, events, unnamed := 0, map[uint64]int{}, map[uint64]int{}, 0
	for _, e := range es {
		switch {
		case e.at < since:
		case e.kind == startsWarm:
			warm++
		case e.kind == startsCold:
			cold[e.seq]++
		case e.kind == wentCold:
			events[e.seq]++
		case e.kind == manyCold:
			unnamed += int(e.seq)
		}
	}
	missing, untold, made := 0, 0, 0
	for e, n := range cold {
		missing += n
		untold += max(0, n-events[e])
	}
	for e := range events {
		made += count(cold[e] == 0)
	}
	r.printf("       %s%d entities began with their state, %d without it; cold starts of %d entities were told by name, and %d by number", what, warm,
		missing, len(events), unnamed)
	r.atMost(what+"states lost that no event told", float64(max(0, untold-unnamed)), 0, "")
	r.atMost(what+"cold starts told of entities that had their state", float64(made), 0, "")
}
