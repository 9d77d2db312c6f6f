//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of backlog.
const (
	backlogSize   = 100 // bytes of a message
	backlogRuns   = 3
	backlogWithin = 10 * time.Second // for -n messages
	// backlogPatience is how long a stop may take before it is broken off and judged.
	backlogPatience = time.Minute
	backlogGrowth   = 1.5 // of the time for one message, from the first of -sizes to the last
)

// backlog has very many messages wait in one mailbox when its node is stopped, planned,
// and times how long they take to be handled at the other node.
func backlog(ctx context.Context, args []string, r *report) error {
	var n, runs int
	var sizes, what string
	var quick bool
	if err := flags("backlog", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 300_000, "messages that must be handled within 10 s")
		f.StringVar(&sizes, "sizes", "10000,1000000", "messages, for each of which the last must not take much longer than the first")
		f.StringVar(&what, "what", "both", "entity, singleton or both")
		f.BoolVar(&quick, "quick", false, "one run of each in place of the medians of three")
	}); err != nil {
		return err
	}
	all := []int{n}
	for _, text := range strings.Split(sizes, ",") {
		if text == "" {
			continue
		}
		size, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("backlog: -sizes: %w", err)
		}
		all = append(all, size)
	}
	if slices.Min(all) < 1 || slices.Max(all) > 10_000_000 {
		return errors.New("backlog: -n and -sizes must be 1 to 10000000")
	}
	kinds, ok := map[string][]bool{"entity": {false}, "singleton": {true}, "both": {false, true}}[what]
	if !ok {
		return errors.New("backlog: -what must be entity, singleton or both")
	}
	if runs = backlogRuns; quick {
		runs = 1
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	for _, single := range kinds {
		if err := backlogOf(ctx, b, r, single, all, runs); err != nil {
			return err
		}
	}
	return nil
}

// backlogOf judges the first of all sizes by its time, and the rest by how it grows.
func backlogOf(ctx context.Context, b *bed, r *report, single bool, all []int, runs int) error {
	name := "entity"
	if single {
		name = "singleton"
	}
	took := map[int]time.Duration{}
	for _, n := range all {
		var each []time.Duration
		for range runs {
			d, err := backlogOnce(ctx, b, r, name, single, n)
			if err != nil {
				return err
			}
			each = append(each, d)
		}
		took[n] = lab.Percentile(each, 50)
		r.printf("       %s: %d messages: %v, %v each", name, n, took[n].Round(time.Millisecond), (took[n] / time.Duration(n)).Round(10*time.Nanosecond))
	}
	r.within(fmt.Sprintf("%s: %d messages, from the stop to the last one handled", name, all[0]), took[all[0]], backlogWithin)
	if len(all) > 2 {
		first, last := all[1], all[len(all)-1]
		r.atMost(fmt.Sprintf("%s: time for each of %d messages, of that for each of %d", name, last, first),
			float64(took[last])/float64(last)/(float64(took[first])/float64(first)), backlogGrowth, "")
	}
	return nil
}

// backlogOnce moves n messages once.
func backlogOnce(ctx context.Context, b *bed, r *report, name string, single bool, n int) (time.Duration, error) {
	c, err := newMailCluster(ctx, b, 2*n+10_000, 1, mailSettings{Nodes: 2, Hosts: 2, Shards: 1, Each: 1, Size: backlogSize, Singleton: single, Buffer: 2*n + 10_000})
	if err != nil {
		return 0, err
	}
	defer c.end()
	if _, err := c.order(0, mailOrder{Do: mailHold}, patience); err != nil {
		return 0, err
	}
	burst, err := c.order(0, mailOrder{Do: mailBurst, Count: n}, 10*patience)
	if err != nil {
		return 0, err
	}
	at := lab.Now()
	stopped, err := c.order(0, mailOrder{Do: mailStop}, backlogPatience)
	if errors.Is(err, lab.ErrNever) {
		stopped, err = mailSaid{Took: backlogPatience, Err: "not yet"}, nil
	}
	if err == nil && stopped.Err == "" {
		err = c.settle(2*time.Second, backlogPatience)
	}
	if err != nil {
		return 0, err
	}
	es, err := c.entries()
	if err != nil {
		return 0, err
	}
	last, there := time.Duration(0), 0
	for _, e := range es {
		if e.kind == handled {
			last = max(last, e.at)
			if e.name == 1 {
				there++
			}
		}
	}
	counted, err := c.counted()
	if err != nil {
		return 0, err
	}
	_, rss := c.rss.Highest()
	_, heap := c.heaps(0).Highest()
	m := lab.JudgeMail(burst.Sent, handlings(es))
	r.printf("       %s: %d messages queued in %v, %d handled at the other node, the last %v after the stop; stopped after %v%s; heap at most %d MiB, resident %d MiB; %d not handled, %d doubled (one came %d times), %d out of order; counted: %s",
		name, n, burst.Took.Round(time.Millisecond), there, (last - at).Round(time.Millisecond), stopped.Took.Round(time.Millisecond), told(stopped.Err), heap>>20, rss>>20,
		m.Lost, m.Doubled, m.Most, m.Reordered, countedText(counted))
	what := fmt.Sprintf("%s, %d messages: ", name, n)
	r.atMost(what+"lost and not counted, doubled, out of order", float64(max(0, int64(m.Lost)-givenUp(counted))+int64(m.Doubled+m.Reordered+m.Unknown)), 0, "")
	r.atMost(what+"handled before the stop, or not at all", float64(max(0, n-there)), float64(n/2), "")
	if stopped.Err != "" {
		return backlogPatience, nil
	}
	return last - at, nil
}
