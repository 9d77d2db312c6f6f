//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// survey is one look at all names, as all nodes see them.
type survey struct {
	began      time.Time
	held       int // names that somebody believes to hold
	doubly     int // names that two believed to hold at one moment
	goroutines int
}

// take surveys handles[node][name].
func take(nodes [][]*lease.Handle) survey {
	s := survey{began: time.Now(), goroutines: runtime.NumGoroutine()}
	for i := range nodes[0] {
		var alive lease.Term
		for _, node := range nodes {
			t, ok := node[i].Term()
			switch {
			case !ok:
			case alive == nil:
				alive = t
				s.held++
			case alive.CheckAlive(): // before and after the other was
				s.doubly++
			}
		}
	}
	return s
}

func outage(ctx context.Context, args []string, r *report) error {
	var lasts, ttl time.Duration
	var n, nodes int
	if err := flags("outage", args, func(f *flag.FlagSet) {
		f.DurationVar(&lasts, "for", 2*time.Minute, "how long etcd is away")
		f.IntVar(&n, "names", 200, "names")
		f.IntVar(&nodes, "nodes", 2, "Keepers, each with a client and loops for all names")
		f.DurationVar(&ttl, "ttl", 10*time.Second, "TTL")
	}); err != nil {
		return err
	}
	if n < 1 || nodes < 1 || ttl < 2*time.Second || lasts < 2*ttl {
		return errors.New("outage: -names and -nodes must be at least 1, -ttl at least 2s, -for at least two TTLs")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	handles := make([][]*lease.Handle, nodes)
	running, stop := context.WithCancel(ctx)
	defer stop()
	var loops sync.WaitGroup
	for i := range handles {
		client, _, err := b.cuttable()
		if err != nil {
			return err
		}
		k, err := b.keeper(client, fmt.Sprintf("node-%d", i), ttl)
		if err != nil {
			return err
		}
		for j := range n {
			h, err := k.Lease(fmt.Sprintf("outage/%d", j))
			if err != nil {
				return err
			}
			handles[i] = append(handles[i], h)
			loops.Go(func() {
				for running.Err() == nil {
					_ = lease.Run(running, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
				}
			})
		}
	}
	if _, _, err := until(ctx, handles, time.Minute, func(s survey) bool { return s.held == n }); err != nil {
		return err
	}
	_, calm, err := until(ctx, handles, 2*ttl, nil)
	if err != nil {
		return err
	}
	if err := b.member().Kill(); err != nil {
		return err
	}
	killed := time.Now()
	_, during, err := until(ctx, handles, lasts, nil)
	if err != nil {
		return err
	}
	ending := time.Now() // it may answer from here on
	if err := b.member().Restart(ctx); err != nil {
		return err
	}
	back := time.Now()
	took, after, err := until(ctx, handles, 6*ttl, func(s survey) bool { return s.held == n })
	if err != nil {
		return err
	}
	_, later, err := until(ctx, handles, 2*ttl, nil)
	if err != nil {
		return err
	}
	stop()
	loops.Wait()
	judgeOutage(r, outaged{n, nodes, ttl, killed, ending, back, took, calm, during, append(after, later...)})
	return nil
}

// until surveys for so long, or until is says so: it returns after how long.
func until(ctx context.Context, handles [][]*lease.Handle, most time.Duration, is func(survey) bool) (time.Duration, []survey, error) {
	began := time.Now()
	var all []survey
	for {
		s := take(handles)
		all = append(all, s)
		switch {
		case is != nil && is(s):
			return s.began.Sub(began), all, nil
		case time.Since(began) < most:
		case is != nil:
			return 0, nil, fmt.Errorf("after %v %d of %d names are held", most, s.held, len(handles[0]))
		default:
			return most, all, nil
		}
		if err := lab.Pause(ctx, 20*time.Millisecond); err != nil {
			return 0, nil, err
		}
	}
}

// outaged is all that was seen.
type outaged struct {
	names, nodes         int
	ttl                  time.Duration
	killed, ending, back time.Time
	took                 time.Duration // from back until all were held
	calm, during, after  []survey
}

func judgeOutage(r *report, o outaged) {
	var believers, doubly, lastBelief = 0, 0, time.Duration(0)
	most := map[string]int{}
	for phase, surveys := range map[string][]survey{"calm": o.calm, "during": o.during, "after": o.after} {
		for _, s := range surveys {
			doubly += s.doubly
			at := phase
			if phase == "during" && s.began.After(o.killed.Add(o.ending.Sub(o.killed)/2)) {
				at = "late"
			}
			most[at] = max(most[at], s.goroutines)
		}
	}
	for _, s := range o.during {
		if s.held > 0 {
			lastBelief = s.began.Sub(o.killed)
		}
		if s.began.After(o.killed.Add(o.ttl)) {
			believers += s.held
		}
	}
	r.printf("       %d names, %d nodes, TTL %v, etcd away for %v; the last belief ended %v after the kill", o.names, o.nodes, o.ttl,
		short(o.ending.Sub(o.killed)), short(lastBelief))
	r.printf("       goroutines at most: %d before, %d and then %d while it was away, %d after its return",
		most["calm"], most["during"], most["late"], most["after"])
	r.atMost("believers later than a TTL after the kill", float64(believers), 0, "")
	r.atMost("names with two believers", float64(doubly), 0, "")
	r.atMost("goroutines in the second half of the outage", float64(most["late"]), float64(most["during"]+30), "")
	r.within("all held again after its return", o.took, o.ttl+2*time.Second)
}
