//go:build linux

package bank

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	// slack is what a planned move may take, and a change of hosts beside the TTL.
	slack = 1500 * time.Millisecond
	// patience bounds every wait for something that takes no TTL.
	patience = 15 * time.Second
	// poll is how often it looks whether what it waits for is there.
	poll = 5 * time.Millisecond
)

// config is the program's settings.
type config struct {
	stage.Config
	patience time.Duration // beside the slack, on a machine that does other things, too
}

// stretch is how long nothing is done to the nodes, each of five times. Beside
// them there is the time of the moves.
func (c config) stretch() time.Duration { return (c.Duration - c.TTL) / 5 }

// course is one run.
type course struct {
	cfg      config
	timeline *stage.Timeline
	journal  *journal
	books    *books
	store    lease.Store
	nodes    []*node // that host, or did
	outside  *node   // the bank's
	bank     *bank
}

// run lets the whole happen, printing to w, and judges it. An error means that
// there is no verdict; it is lease.ErrInvalid if cfg makes no sense.
func run(cfg config, w io.Writer) (stage.Verdict, error) {
	if err := cfg.Check(); err != nil {
		return stage.Verdict{}, err
	}
	if err := register(); err != nil {
		return stage.Verdict{}, err
	}
	c := &course{cfg: cfg, timeline: stage.NewTimeline(w), journal: newJournal(), books: &books{}, store: memory.New()}
	return stage.Perform(c.timeline, c.setUp, c.play, c.tearDown, judge)
}

// setUp starts four nodes, each on its own port, and the bank's.
func (c *course) setUp() error {
	for i := range 4 {
		if err := c.join(fmt.Sprintf("node-%d", i+1)); err != nil {
			return err
		}
	}
	n, err := newNode("bank", c.store, c.cfg, c.timeline)
	if err != nil {
		return err
	}
	c.outside = n
	n.say("listens on %s; hosts nothing", n.remote.Address())
	return n.reach()
}

// join adds a node that hosts.
func (c *course) join(id string) error {
	n, err := newNode(id, c.store, c.cfg, c.timeline)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, n)
	n.say("listens on %s", n.remote.Address())
	return n.start(c.journal)
}

// play is what happens to the nodes.
func (c *course) play() (e evidence, err error) {
	e = evidence{ttl: c.cfg.TTL, slack: slack + c.cfg.patience, accounts: accounts}
	if err := c.settled("node-1", "node-2", "node-3", "node-4"); err != nil {
		return e, err
	}
	c.bank = startBank(c.outside.region, c.cfg.TTL, c.books, c.timeline, stage.Now)
	time.Sleep(c.cfg.stretch())

	e.phase("join", stage.Now())
	c.timeline.Say("node-5", "JOINS")
	if err := c.join("node-5"); err != nil {
		return e, err
	}
	if err := c.settled("node-1", "node-2", "node-3", "node-4", "node-5"); err != nil {
		return e, err
	}
	time.Sleep(c.cfg.stretch())

	e.phase("leave", stage.Now())
	if err := c.leave("node-4"); err != nil {
		return e, err
	}
	if err := c.settled("node-1", "node-2", "node-3", "node-5"); err != nil {
		return e, err
	}
	time.Sleep(c.cfg.stretch())

	boss := c.outside.region.Info().Coordinator.ID
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == boss })
	if i < 0 {
		return e, fmt.Errorf("%q coordinates, which is no node here", boss)
	}
	first := c.nodes[i]
	e.killed = first.id
	if e.killedAt, err = first.kill(); err != nil {
		return e, err
	}
	e.phase("kill", e.killedAt)
	left := []string{"node-1", "node-2", "node-3", "node-5"}
	left = slices.DeleteFunc(left, func(id string) bool { return id == first.id })
	if err := c.settled(left...); err != nil {
		return e, err
	}
	time.Sleep(c.cfg.stretch())

	e.phase("thaw", stage.Now())
	e.thawedAt = e.phases[len(e.phases)-1].from
	first.thaw()
	time.Sleep(c.cfg.stretch())
	e.to = stage.Now()
	e.lost = int(first.lost.Load())
	return e, c.close(&e)
}

// leave has a node leave.
func (c *course) leave(id string) error {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == id })
	n := c.nodes[i]
	n.say("LEAVES: hands its shards over, then leaves the group")
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := n.peer.leave(ctx); err != nil {
		return err
	}
	n.say("has left")
	c.nodes = slices.Delete(c.nodes, i, i+1)
	return nil
}

// settled waits until these nodes host all shards, each its part.
func (c *course) settled(among ...string) error {
	return settled(c.outside.peer, c.cfg.TTL+patience, c.timeline, among)
}

func settled(p *peer, most time.Duration, t *stage.Timeline, among []string) error {
	var text string
	if !stage.Until(most, poll, func() bool {
		var even bool
		text, even = spread(p.region.Info(), among...)
		return even
	}) {
		return fmt.Errorf("the shards are not spread evenly among %v after %v: %s", among, most, text)
	}
	t.Say("bank", "sees all %d shards hosted: %s", shards, text)
	return nil
}

// close closes the bank, and completes the evidence.
func (c *course) close(e *evidence) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.TTL+patience)
	defer cancel()
	if err := c.bank.stop(ctx); err != nil {
		c.timeline.Say("bank", "%v", err) // the verdict says so, too
	}
	c.bank = nil
	time.Sleep(memoEvery) // the last memos
	c.books.fill(e)
	e.entries, e.passes = c.journal.snapshot()
	return nil
}

// tearDown ends what is left: the one that was killed last, lest it be host once
// more.
func (c *course) tearDown(bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if c.bank != nil {
		_ = c.bank.stop(ctx) // there is an error already
	}
	var first, last []*node
	if c.outside != nil {
		first = append(first, c.outside)
	}
	for _, n := range c.nodes {
		if n.dead {
			last = append(last, n)
		} else {
			first = append(first, n)
		}
	}
	for _, n := range append(first, last...) {
		n.thaw()
		n.store.Heal()
		if err := n.peer.leave(ctx); err != nil {
			n.say("%v", err)
		}
	}
	return nil
}
