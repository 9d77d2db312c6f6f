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

// Of a run of handovers.
const (
	changeEvery  = 400 * time.Millisecond
	changeWithin = 10 * time.Second // else there are no more
	warmUp       = 2 * time.Second  // of the load, before the first change
	gapBound     = 20 * time.Millisecond
	shortBound   = 0.05 // share of the load that a busy machine may fail to send
)

// handovers moves a singleton from node to node under load.
func handovers(ctx context.Context, args []string, r *report) error {
	var n, nodes, buffer int
	var rate float64
	if err := flags("handovers", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 50, "hand-overs")
		f.IntVar(&nodes, "nodes", 3, "processes; the singleton goes round them")
		f.Float64Var(&rate, "rate", 10000, "messages a second, of all nodes together")
		f.IntVar(&buffer, "buffer", 0, "messages that a manager keeps while there is no host; 0: a second of the load")
	}); err != nil {
		return err
	}
	if n < 1 || nodes < 2 || nodes > 100 || rate < 100 || rate > 100000 || buffer < 0 {
		return errors.New("handovers: -n must be at least 1, -nodes 2 to 100, -rate 100 to 100000, -buffer at least 0")
	}
	if buffer == 0 {
		buffer = max(int(rate), 1000)
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	// Two entries a message, all on one node if it never moves; slow changes take
	// longer. The file is sparse.
	room := int(4 * rate * (warmUp + time.Duration(n)*changeEvery + 3*changeWithin).Seconds())
	c, err := newCluster(ctx, b, nodes, room, settings{TTL: 10 * time.Second, Names: 1, Follows: true, Buffer: buffer})
	if err != nil {
		return err
	}
	defer c.end()
	h := &handing{cluster: c, rate: rate}
	if err := h.run(ctx, n); err != nil {
		return err
	}
	return h.judge(r, n, buffer)
}

// handing is a run of handovers.
type handing struct {
	*cluster
	rate       float64
	began, end time.Duration // of the load
	changes    []change
	stuck      error // the change that did not come about
	quiet      []said
	weights    []said
}

// run stops at the first change that does not come about: it is judged as well.
func (h *handing) run(ctx context.Context, n int) error {
	if _, err := h.all(ctx, order{Do: doHost}, isHosting); err != nil {
		return err
	}
	if err := h.lead(ctx, 0); err != nil {
		return err
	}
	h.changes = nil // the first host is none
	h.began = lab.Now()
	if err := h.tell(order{Do: doLoad, Rate: h.rate / float64(len(h.nodes))}); err != nil {
		return err
	}
	if err := lab.Pause(ctx, warmUp); err != nil {
		return err
	}
	for i := range n {
		next := time.Now().Add(changeEvery)
		to := (i + 1) % len(h.nodes)
		err := h.lead(ctx, to)
		if err == nil {
			err = h.serves(ctx, to)
		}
		if errors.Is(err, errNever) {
			h.stuck = fmt.Errorf("hand-over %d: %w", i+1, err)
			break
		} else if err != nil {
			return err
		}
		if err := lab.Pause(ctx, time.Until(next)); err != nil {
			return err
		}
	}
	h.end = lab.Now()
	var err error
	if h.quiet, err = h.all(ctx, order{Do: doQuiet}, isQuiet); err != nil {
		return err
	}
	if err := h.drained(ctx); err != nil {
		return err
	}
	h.weights, err = h.all(ctx, order{Do: doWeigh}, hasWeight)
	return err
}

// lead makes node i the leader for all, and waits until it hosts.
func (h *handing) lead(ctx context.Context, i int) error {
	h.changes = append(h.changes, change{at: lab.Now(), to: i})
	return h.cluster.lead(ctx, i)
}

// serves waits until node i has handled something since it was made the leader:
// only then the next change can be told from this one.
func (h *handing) serves(ctx context.Context, i int) error {
	since := h.changes[len(h.changes)-1].at
	ctx, cancel := context.WithTimeoutCause(ctx, changeWithin, fmt.Errorf("%s: a message %w within %v", h.nodes[i].id, errNever, changeWithin))
	defer cancel()
	for from := 0; ; {
		var served bool
		if from, served = handledSince(h.journals[i][0], from, since); served {
			return nil
		}
		if err := lab.Pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// drained waits until nothing was handled for a while.
func (h *handing) drained(ctx context.Context) error {
	for had := -1; h.noted() != had; {
		had = h.noted()
		if err := lab.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (h *handing) judge(r *report, n, buffer int) error {
	es, err := h.evidence()
	if err != nil {
		return err
	}
	sent, failed := map[uint32]uint64{}, 0
	for _, q := range h.quiet {
		for s, n := range q.Sent {
			sent[s] = n
		}
		failed += q.Failed
	}
	got := only(es, handled)
	d, g := judgeDelivery(got, sent), judgeGaps(got, h.changes, h.end)
	took := (h.end - h.began).Seconds()
	r.printf("       %d nodes, %d senders, %.0f messages a second for %.1f s, %d hand-overs, managers keep up to %d messages",
		len(h.nodes), len(sent), float64(d.sent)/took, took, len(h.changes), buffer)
	h.losses(r, failed)
	r.atMost("share of the load that was not sent", 1-float64(d.sent)/(h.rate*took), shortBound, "")
	if h.stuck != nil {
		r.printf("       %v", h.stuck)
	}
	r.atMost("hand-overs that did not come about", float64(n-len(h.changes)+g.missing), 0, "")
	r.delivered(d)
	r.atMost("passes that overlap another token's or host's", float64(overlaps(only(es, passed))), 0, "")
	r.atMost("messages handled that overlap another token's or host's", float64(overlaps(got)), 0, "")
	var still []time.Duration // of the machine alone
	for at := h.began + changeEvery; at+changeEvery <= h.began+warmUp; at += changeEvery {
		still = append(still, silences(got, at, at+changeEvery)...)
	}
	r.spread("before the first: longest silences", still)
	r.spread("before the first: a message's way", g.calm)
	r.spread("longest way around each hand-over", g.worst)
	r.spread("old host's last to new host's first", g.host)
	r.spread("longest silence, by sender's node", g.silence)
	r.within("p50 from old host's last to new host's first", lab.Percentile(g.host, 50), gapBound)
	r.within("p50 of the longest silence of a sender's node", lab.Percentile(g.silence, 50), gapBound)
	return nil
}

// losses says what the nodes know to be lost.
func (h *handing) losses(r *report, failed int) {
	var w weight
	for _, s := range h.weights {
		w.Dropped += s.Weight.Dropped
		w.Undeliverable += s.Weight.Undeliverable
		w.DeadLetters += s.Weight.DeadLetters
	}
	r.printf("       by the nodes' own counts: %d dropped, %d undeliverable, %d dead letters, %d back at their senders",
		w.Dropped, w.Undeliverable, w.DeadLetters, failed)
}

// delivered judges what became of the messages.
func (r *report) delivered(d delivery) {
	for _, first := range []string{d.firstLost, d.firstReordered} {
		if first != "" {
			r.printf("       first lost or reordered: %s", first)
		}
	}
	r.printf("       %d messages sent, %d handled", d.sent, d.handled)
	r.atMost("messages lost", float64(d.lost), 0, "")
	r.atMost("messages doubled", float64(d.doubled), 0, "")
	r.atMost("messages reordered", float64(d.reordered), 0, "")
	r.atMost("messages that nobody sent", float64(d.foreign), 0, "")
}
