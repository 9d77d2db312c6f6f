//go:build linux

package scheduler

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

const (
	// slack is what a change of hosts may take beside the TTL.
	slack = time.Second
	// patience bounds every wait for something that takes no TTL.
	patience = 10 * time.Second
	// poll is how often it looks whether what it waits for is there.
	poll = 2 * time.Millisecond
)

// stretch is how long nothing is done to the nodes, each of four times. Beside
// them there is the time of the kill, about a TTL.
func stretch(cfg stage.Config) time.Duration { return (cfg.Duration - cfg.TTL) / 4 }

// course is one run.
type course struct {
	cfg      stage.Config
	timeline *stage.Timeline
	journal  *journal
	books    *books
	nodes    []*node // the three that may host
	outside  *node   // the client's
	client   *actor.PID
}

// run lets the whole happen, printing to w, and judges it. An error means that
// there is no verdict; it is lease.ErrInvalid if cfg makes no sense.
func run(cfg stage.Config, w io.Writer) (stage.Verdict, error) {
	if err := cfg.Check(); err != nil {
		return stage.Verdict{}, err
	}
	if err := register(); err != nil {
		return stage.Verdict{}, err
	}
	c := &course{cfg: cfg, timeline: stage.NewTimeline(w), journal: newJournal(), books: &books{}}
	return stage.Perform(c.timeline, c.setUp, c.play, c.tearDown, judge)
}

// setUp starts the nodes, each on its own port, and the client.
func (c *course) setUp() error {
	store := memory.New()
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		n, err := newNode(id, store, c.cfg, c.timeline)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		n.say("listens on %s", n.remote.Address())
		if err := n.start(c.journal); err != nil {
			return err
		}
	}
	n, err := newNode("client", store, c.cfg, c.timeline)
	if err != nil {
		return err
	}
	c.outside = n
	n.say("listens on %s; forwards only", n.remote.Address())
	return n.reach()
}

// play is what happens to the nodes.
func (c *course) play() (e evidence, err error) {
	e = evidence{ttl: c.cfg.TTL, slack: slack}
	first, err := c.hostBeside()
	if err != nil {
		return e, err
	}
	e.from, e.first = stage.Now(), ended{node: first.id, by: "kill"}
	e.frozen = first.id
	c.startClient()
	time.Sleep(stretch(c.cfg))

	if e.frozenAt, err = first.kill(); err != nil {
		return e, err
	}
	second, err := c.hostBeside(first)
	if err != nil {
		return e, err
	}
	e.second = ended{node: second.id, by: "leave", released: true}
	time.Sleep(stretch(c.cfg))

	second.say("LEAVES: stops the scheduler, releases the lease")
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := second.leave(ctx); err != nil {
		return e, err
	}
	second.say("has left")
	if _, err := c.hostBeside(first, second); err != nil {
		return e, err
	}
	time.Sleep(stretch(c.cfg))

	e.thawedAt = stage.Now()
	first.resurrect()
	time.Sleep(stretch(c.cfg))

	c.books.close()
	if err := c.allAnswered(); err != nil {
		c.timeline.Say("client", "%v", err) // the verdict says so, too
	}
	e.to = stage.Now()
	e.noticed = first.lostLease()
	e.entries, e.passes = c.journal.snapshot()
	e.sent, e.resends, e.acked = c.books.balance()
	return e, nil
}

func (c *course) startClient() {
	c.client = spawnClient(c.outside.peer, c.cfg.TTL, c.books, c.timeline)
}

// hostBeside waits until a node hosts that is none of those.
func (c *course) hostBeside(those ...*node) (*node, error) {
	var host *node
	most := c.cfg.TTL + patience
	if !stage.Until(most, poll, func() bool {
		id := c.journal.host()
		i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == id && !slices.Contains(those, n) })
		if i >= 0 {
			host = c.nodes[i]
		}
		return host != nil
	}) {
		return nil, fmt.Errorf("no new host within %v", most)
	}
	return host, nil
}

// allAnswered waits for the acknowledgements that are missing.
func (c *course) allAnswered() error {
	var missing int
	if !stage.Until(c.cfg.TTL+patience, poll, func() bool {
		sent, _, acked := c.books.balance()
		missing = sent - len(acked)
		return missing == 0
	}) {
		return fmt.Errorf("%d jobs are still not acknowledged", missing)
	}
	return nil
}

// tearDown ends what is left: the one that was killed first, lest it be host
// once more.
func (c *course) tearDown(bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c.client != nil {
		c.outside.system.Root.Stop(c.client)
	}
	for _, n := range append(c.nodes[:len(c.nodes):len(c.nodes)], c.outside) {
		if n == nil {
			continue
		}
		n.resurrect()
		if err := n.leave(ctx); err != nil {
			n.say("%v", err)
		}
	}
	return nil
}
