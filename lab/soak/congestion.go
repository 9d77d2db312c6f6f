//go:build linux

package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of congestion.
const (
	crowdNodes   = 4
	crowdShards  = 32
	crowdEach    = 8
	crowdRate    = 1500.0 // messages a second, of all nodes together
	crowdAsks    = 100.0  // asks a second, of all nodes together
	crowdSize    = 100
	crowdMove    = 2 * time.Second
	crowdWarm    = 3 * time.Second
	crowdDelay   = 50 * time.Millisecond
	crowdJitter  = 250 * time.Millisecond
	crowdBytes   = 1.5 // of the reference, at most
	crowdP99     = 2.0
	crowdRecover = 2 * time.Second

	stallMail = 30_000
	stallRate = 3000.0
	stallFor  = 8 * time.Second
)

// congestion has links become slow under a load while shards move, and looks at what is
// sent over them and how soon all is well again.
func congestion(ctx context.Context, args []string, r *report) error {
	var seed uint64
	var length time.Duration
	var part int
	if err := flags("congestion", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 55*time.Second, "length of the first part: well, slow and healed")
		f.Uint64Var(&seed, "seed", 0, "of the jitter; 0: any")
		f.IntVar(&part, "part", 0, "1: slow links, 2: a link that is stalled in the middle of a move; 0: both")
	}); err != nil {
		return err
	}
	if length < 11*time.Second || part < 0 || part > 2 {
		return fmt.Errorf("congestion: -for must be at least 11s, -part 0 to 2")
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
	if part != 2 {
		if err := slowLinks(ctx, b, r, length, seed); err != nil {
			return err
		}
	}
	if part != 1 {
		return stalledMove(ctx, b, r, seed)
	}
	return nil
}

// window is a part of a run, and what had gone over the links when it began and ended.
type window struct {
	span
	bytes int64
}

// watched has the links carry mail for a while, and returns what went over them.
func (c *mailCluster) watched(d time.Duration) (w window, err error) {
	w.from, w.bytes = lab.Now(), c.links.Bytes()
	err = c.pause(d)
	w.to, w.bytes = lab.Now(), c.links.Bytes()-w.bytes
	return w, err
}

// perMessage is how many bytes went over the links for each message that was sent in
// the window, and asks are how long those took that were.
func (w window) perMessage(es []entry) float64 {
	n := 0
	for _, e := range es {
		if e.kind == handled && e.sent >= w.from && e.sent < w.to {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return float64(w.bytes) / float64(n)
}

// asks are how long asks took that were sent in the window; those without an answer
// are among them, with what they were given.
func (w window) asks(es []entry) (took []time.Duration) {
	for _, e := range es {
		if (e.kind == answered || e.kind == askFailed) && e.sent >= w.from && e.sent < w.to {
			took = append(took, e.at-e.sent)
		}
	}
	return took
}

// slowLinks is the first part.
func slowLinks(ctx context.Context, b *bed, r *report, length time.Duration, seed uint64) error {
	room := int(2*(crowdRate+crowdAsks)*(length.Seconds()+60)) + 100_000
	c, err := newMailCluster(ctx, b, room, seed, mailSettings{Nodes: crowdNodes, Hosts: crowdNodes, Shards: crowdShards, Each: crowdEach, Size: crowdSize})
	if err != nil {
		return err
	}
	defer c.end()
	r.printf("       %d nodes, %v; %d shards, %.0f messages of %d bytes and %.0f asks a second, a planned move every %v", crowdNodes, c.links, crowdShards,
		crowdRate, crowdSize, crowdAsks, crowdMove)
	if _, err := c.all(mailOrder{Do: mailLoad, Rate: crowdRate / crowdNodes, Asks: crowdAsks / crowdNodes}, patience); err != nil {
		return err
	}
	moves := c.moveOn()
	var well, slow, healed window
	if err := c.pause(crowdWarm); err != nil {
		return err
	}
	for _, step := range []struct {
		shape lab.Shape
		share int // of eleven
		w     *window
	}{
		{lab.Shape{}, 4, &well},
		{lab.Shape{Delay: crowdDelay, Jitter: crowdJitter}, 3, &slow},
		{lab.Shape{}, 4, &healed},
	} {
		c.links.Shape(step.shape)
		if *step.w, err = c.watched(length * time.Duration(step.share) / 11); err != nil {
			return err
		}
	}
	drained, undone, err := moves()
	if err != nil {
		return err
	}
	sent, err := c.quiet(2*time.Second, 30*time.Second)
	if err != nil {
		return err
	}
	es, err := c.entries()
	if err != nil {
		return err
	}
	if drained == 0 {
		return fmt.Errorf("%w: no planned move", errNothing)
	}
	r.printf("       well for %v, %v and up to %v more for %v, healed for %v; %d drains begun, %d not done in time", (well.to - well.from).Round(time.Second),
		crowdDelay, crowdJitter, (slow.to - slow.from).Round(time.Second), (healed.to - healed.from).Round(time.Second), drained, undone)
	reference := well.perMessage(es)
	r.spread("asks while well", well.asks(es))
	r.spread("asks while slow", slow.asks(es))
	later := healed
	later.from += crowdRecover
	r.spread("asks from 2 s after healing on", later.asks(es))
	r.printf("       bytes on the wire for each message: well %.0f, slow %.0f, healed %.0f", reference, slow.perMessage(es), healed.perMessage(es))
	r.atMost("bytes for each message while slow, of the reference", slow.perMessage(es)/reference, crowdBytes, "")
	r.atMost("bytes for each message after healing, of the reference", healed.perMessage(es)/reference, crowdBytes, "")
	r.atMost("p99 of asks from 2 s after healing on, of the reference", ratio(lab.Percentile(later.asks(es), 99), lab.Percentile(well.asks(es), 99)), crowdP99, "")
	if _, err := c.judgeMail(r, "", sent, es); err != nil {
		return err
	}
	c.judgeMemory(r, "")
	return nil
}

// moveOn drains a node, has it take part again, and goes on to the next, with a planned
// move each time. What it returns ends that, and tells how many drains there were, and
// how many were not done when they were undone.
func (c *mailCluster) moveOn() (end func() (drained, undone int, err error)) {
	ctx, stop := context.WithCancel(c.ctx)
	done := make(chan struct{})
	var drained, undone int
	var failed error
	go func() {
		defer close(done)
		for i := 0; failed == nil; i = (i + 1) % len(c.nodes) {
			at := lab.Now()
			if failed = c.nodes[i].Tell(mailOrder{Do: mailDrain}); failed != nil || lab.Pause(ctx, crowdMove) != nil {
				break
			}
			drained++
			if _, ok := c.nodes[i].Find(func(r mailSaid) bool { return r.What == mailDrain && r.At >= at }); !ok {
				undone++
			}
			if failed = c.nodes[i].Tell(mailOrder{Do: mailUndrain}); failed != nil || lab.Pause(ctx, crowdMove) != nil {
				break
			}
		}
	}()
	return func() (int, int, error) {
		stop()
		<-done
		return drained, undone, failed
	}
}

// stalledMove is the second part: two nodes host, two send, and what the old host sends
// to the new one waits from the moment on when the first shard has moved.
func stalledMove(ctx context.Context, b *bed, r *report, seed uint64) error {
	c, err := newMailCluster(ctx, b, 4*stallMail+100_000, seed, mailSettings{Nodes: crowdNodes, Hosts: 2, Shards: crowdShards, Each: crowdEach, Size: crowdSize})
	if err != nil {
		return err
	}
	defer c.end()
	// All is on the first node, and will be on the second.
	if _, err := c.order(1, mailOrder{Do: mailDrain}, patience); err != nil {
		return err
	}
	began, bytes := lab.Now(), c.links.Bytes()
	for i := 2; i < crowdNodes; i++ {
		if _, err := c.order(i, mailOrder{Do: mailLoad, Rate: stallRate / 2, Count: stallMail / 2}, patience); err != nil {
			return err
		}
	}
	if err := c.pause(time.Second); err != nil {
		return err
	}
	at := lab.Now()
	if err := c.swap(); err != nil {
		return err
	}
	if _, err := c.nodes[0].Await(c.ctx, patience, mailHandedOff, func(s mailSaid) bool { return s.What == mailHandedOff && s.At >= at }); err != nil {
		return err
	}
	c.links.Link(0, 1).Set(lab.Shape{Stall: true})
	if err := c.pause(stallFor); err != nil {
		return err
	}
	c.links.Link(0, 1).Heal()
	healed := lab.Now()
	drained, err := c.nodes[0].Await(c.ctx, patience, mailDrain, func(s mailSaid) bool { return s.What == mailDrain && s.At >= at })
	if err != nil {
		return err
	}
	if err := c.pause(began + time.Duration(stallMail/stallRate*float64(time.Second)) - lab.Now()); err != nil {
		return err
	}
	sent, err := c.quiet(3*time.Second, time.Minute)
	if err != nil {
		return err
	}
	bytes = c.links.Bytes() - bytes
	es, err := c.entries()
	if err != nil {
		return err
	}
	last := time.Duration(0)
	for _, e := range es {
		if e.kind == handled {
			last = max(last, e.at)
		}
	}
	r.printf("       one move of %d shards, its link stalled for %v from the first one handed off; drained after %v%s; the last message was handled %v after healing",
		crowdShards, stallFor, (drained.At - at).Round(time.Millisecond), told(drained.Err), (last - healed).Round(time.Millisecond))
	m, err := c.judgeMail(r, "stalled: ", sent, es)
	if err != nil {
		return err
	}
	if m.Sent > 0 {
		r.printf("       stalled: %.0f bytes on the wire for each message", float64(bytes)/float64(m.Sent))
	}
	c.judgeMemory(r, "stalled: ")
	return nil
}

// swapAfter is how long a node takes part again before the other is drained: long
// enough for the coordinator to know, and too short for it to move shards for balance.
// A node that is drained while there is no other gives its shards up without a successor.
const swapAfter = 400 * time.Millisecond

// swap has the second node take all that the first one hosts.
func (c *mailCluster) swap() error {
	if _, err := c.order(1, mailOrder{Do: mailUndrain}, patience); err != nil {
		return err
	}
	if err := c.pause(swapAfter); err != nil {
		return err
	}
	return c.nodes[0].Tell(mailOrder{Do: mailDrain})
}

func told(err string) string {
	if err == "" {
		return ""
	}
	return " (" + err + ")"
}
