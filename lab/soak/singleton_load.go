//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of singletonload.
const (
	crownNodes   = 3
	crownMove    = 2 * time.Second
	crownSize    = 100
	crownBurners = 4
	crownMost    = 8_000_000 // messages, all of which are judged in memory
)

// singletonLoad has a singleton move again and again under a high load, for a while on
// a machine that is busy with something else.
func singletonLoad(ctx context.Context, args []string, r *report) error {
	var length, busy time.Duration
	var rate float64
	if err := flags("singletonload", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 10*time.Minute, "length of the load")
		f.DurationVar(&busy, "busy", 30*time.Second, "how long the machine is busy in the middle, at most a third of the load")
		f.Float64Var(&rate, "rate", 5000, "messages a second, of all nodes together")
	}); err != nil {
		return err
	}
	if length < 10*time.Second || rate < 100 || rate*length.Seconds() > crownMost || busy < 0 {
		return fmt.Errorf("singletonload: -for must be at least 10s, -rate at least 100, both together at most %d messages", crownMost)
	}
	busy = min(busy, length/3)
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := newMailCluster(ctx, b, int(1.5*rate*length.Seconds())+200_000, 1,
		mailSettings{Nodes: crownNodes, Hosts: crownNodes, Size: crownSize, Singleton: true, Follows: true})
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := c.all(mailOrder{Do: mailLoad, Rate: rate / crownNodes}, patience); err != nil {
		return err
	}
	end := make(chan error, 1)
	from := lab.Now() + (length-busy)/2
	go func() { end <- c.beBusy(from, busy) }()
	moves, slow, err := c.crown(lab.Now() + length)
	err = errors.Join(err, <-end)
	if err != nil {
		return err
	}
	sent, err := c.quiet(2*time.Second, time.Minute)
	if err != nil {
		return err
	}
	es, err := c.entries()
	if err != nil {
		return err
	}
	if moves == 0 {
		return fmt.Errorf("%w: no planned move", errNothing)
	}
	r.printf("       %d nodes, %.0f messages of %d bytes a second for %v, %d hand-overs, %d of which took longer than %v; %d busy loops for %v", crownNodes, rate,
		crownSize, length, moves, slow, crownMove, crownBurners, busy)
	m, err := c.judgeMail(r, "", sent, es)
	if err != nil {
		return err
	}
	r.spread("from sent to handled", m.Took)
	if float64(m.Sent) < rate*length.Seconds()/2 {
		return fmt.Errorf("%w: only %d messages were sent", errNothing, m.Sent)
	}
	c.judgeMemory(r, "")
	return nil
}

// beBusy has the machine busy from a time on.
func (c *mailCluster) beBusy(from, length time.Duration) error {
	if length <= 0 {
		return nil
	}
	if err := c.pause(from - lab.Now()); err != nil {
		return err
	}
	at, err := lab.NewPlace(false)
	if err != nil {
		return err
	}
	defer at.End()
	end, err := lab.Burners(at, crownBurners)
	if err != nil {
		return err
	}
	return errors.Join(c.pause(length), end())
}

// crown makes one node after the other the leader, until then.
func (c *mailCluster) crown(until time.Duration) (moves, slow int, err error) {
	for next := 1; lab.Now() < until; next = (next + 1) % len(c.nodes) {
		at := lab.Now()
		if _, err := c.all(mailOrder{Do: mailLead, Leader: c.nodes[next].up.Owner}, patience); err != nil {
			return moves, slow, err
		}
		if _, err := c.nodes[next].Await(c.ctx, 2*patience, mailHosted, func(r mailSaid) bool { return r.What == mailHosted && r.At >= at }); err != nil {
			return moves, slow, err
		}
		moves++
		if lab.Now()-at > crownMove {
			slow++
		}
		if err := c.pause(at + crownMove - lab.Now()); err != nil {
			return moves, slow, err
		}
	}
	return moves, slow, nil
}
