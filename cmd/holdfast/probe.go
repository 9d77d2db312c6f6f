package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/advise"
	"github.com/holdfast-go/holdfast/store"
)

// times are how long requests took, sorted.
type times []time.Duration

func (t times) percentile(p float64) time.Duration {
	return t[min(len(t)-1, int(p*float64(len(t))/100))]
}

// summary is what is printed of times.
type summary struct {
	What string  `json:"what"`
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	Max  float64 `json:"max_ms"`
}

func (t times) summary(what string) summary {
	at := func(p float64) float64 { return millis(t.percentile(p)) }
	return summary{what, len(t), at(50), at(90), at(99), at(100)}
}

// measure acquires and releases n names under prefix, some at once, and says each second how far it is.
// Read-only, it reads the names in place of acquiring them.
func (a *app) measure(ctx context.Context, o *opened, prefix string, n, parallel int) (acquired, released times, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	run, start, said := rand.Uint64(), time.Now(), time.Now()
	one := func(l *lease.Handle) (err error) {
		began := time.Now()
		if a.readOnly {
			_, err = o.store.Get(ctx, l.Name())
		} else {
			_, err = l.Acquire(ctx)
		}
		won := time.Now()
		if !a.readOnly && err == nil {
			err = l.Release(context.WithoutCancel(ctx)) // also if it is interrupted
		}
		mu.Lock()
		defer mu.Unlock()
		acquired, released = append(acquired, won.Sub(began)), append(released, time.Since(won))
		if done := len(acquired); time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(a.log, "holdfast: %d of %d, %.0f a second\n", done, n, float64(done)/said.Sub(start).Seconds())
		}
		return err
	}
	for worker := range min(n, parallel) {
		all.Go(func() {
			l, failed := o.keeper.Lease(fmt.Sprintf("%s/%016x/%d", prefix, run, worker))
			for i := worker; i < n && failed == nil; i += parallel {
				failed = one(l)
			}
			mu.Lock()
			defer mu.Unlock()
			err = cmp.Or(err, failed)
		})
	}
	all.Wait()
	slices.Sort(acquired)
	slices.Sort(released)
	return acquired, released, o.say(err)
}

// probing makes a command that uses the store, with the number of samples as a flag.
func (a *app) probing(use, short, example string, samples int,
	f func(ctx context.Context, o *opened, samples int) error) *cobra.Command {
	c := a.command(use, short, example, "", func(ctx context.Context, _ []string) error {
		if samples < 1 || samples > 1_000_000 {
			return usage("--samples: %d, must be from 1 to 1000000", samples)
		}
		return a.over(ctx, func(o *opened) error { return f(ctx, o, samples) })
	})
	c.Flags().IntVarP(&samples, "samples", "n", samples, "how often to acquire and release a lease")
	return c
}

// check is one thing that was checked.
type check struct {
	Check    string   `json:"check"`
	Severity string   `json:"severity"` // ok, warn, bad
	Text     string   `json:"text"`
	Times    *summary `json:"times,omitempty"`
}

func (a *app) checkCommand() *cobra.Command {
	c := a.probing("check", "Probe the store: what it can do, how fast, and whether TTLs fit", "holdfast check --read-only",
		50, func(ctx context.Context, o *opened, samples int) error {
			ctx, stop := context.WithTimeout(ctx, time.Minute)
			defer stop()
			all := a.check(ctx, o, samples)
			if err := a.print(nil, "checks", boxed(all, nil)); err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(c check) bool { return c.Severity == console.Bad }) {
				return &coded{codeError, nil}
			}
			return nil
		})
	c.Long = c.Short + `.
It takes leases under holdfast-check/ and releases them; with --read-only it writes nothing. Exit 1: a
check is bad.`
	return c
}

// check probes the store; it ends with the first check that is bad.
func (a *app) check(ctx context.Context, o *opened, samples int) (all []check) {
	say := func(name string, err error, format string, args ...any) bool {
		c := check{Check: name, Severity: "ok", Text: fmt.Sprintf(format, args...)}
		if err != nil {
			c.Severity, c.Text = console.Bad, err.Error()
		}
		all = append(all, c)
		return err == nil
	}
	warn := func(name, format string, args ...any) {
		all = append(all, check{Check: name, Severity: console.Warn, Text: fmt.Sprintf(format, args...)})
	}
	say("store", nil, "%s", o.where)
	if s, ok := o.store.(schema); ok && !say("schema", s.Check(ctx), "this version can use it") {
		return all
	}
	took, _, err := a.measure(ctx, o, "holdfast-check", samples, 1)
	if err != nil {
		say("round trips", err, "")
		return all
	}
	t := took.summary(map[bool]string{true: "read", false: "acquire"}[a.readOnly])
	all = append(all, check{"round trips", "ok", fmt.Sprintf("%s: p50 %.3g ms, p99 %.3g ms of %d", t.What, t.P50, t.P99, t.N), &t})
	if _, watches := o.store.(store.Watcher); !watches {
		warn("watch", "the store does not tell of changes: nodes look now and then")
	}
	if !a.readOnly {
		offset, wrong, err := o.clock(ctx)
		if err != nil || wrong > 0 {
			say("clock", err, "grants bear this machine's time %+.1f ms, ± %.1f ms", millis(offset), millis(wrong))
		}
	}
	ttls, records := map[time.Duration]int{}, 0
	for r, err := range o.store.List(ctx, store.Query{}) {
		switch {
		case errors.Is(err, store.ErrUnsupported):
			warn("list", "the store can't list, so holdfast ls can't")
		case errors.Is(err, store.ErrBadRecord):
			warn("record", "%s holds what is no record, and is held until that is deleted", r.Name)
		case err != nil:
			say("list", err, "")
			return all
		default:
			records++
			ttls[r.TTL]++
		}
	}
	say("list", nil, "%d records", records)
	// With nothing but crashes to pay for, the best TTL is the shortest that can be kept.
	least, err := advise.TTL(advise.Input{RoundTrip: took.percentile(50), Tail: took.percentile(99),
		Crashes: 1, OutageCost: 1, Least: max(lease.MinTTL, o.store.Limits().MinTTL)})
	say("TTL", err, "%s or more can be kept here: holdfast tune advises one", span(least.TTL))
	for _, ttl := range slices.Sorted(maps.Keys(ttls)) {
		if ttl > 0 && ttl < least.TTL {
			warn("TTL", "%s, which %d of them have, is below that: they will be lost now and then", span(ttl), ttls[ttl])
		}
	}
	return all
}

// clock is how far the time that a grant bears is from this machine's; wrong is 0 if it bears none.
func (o *opened) clock(ctx context.Context) (offset, wrong time.Duration, err error) {
	l, err := o.keeper.Lease(fmt.Sprintf("holdfast-check/%016x", rand.Uint64()))
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if _, err = l.Acquire(ctx); err != nil {
		return 0, 0, err
	}
	half := time.Since(start) / 2
	r, err := o.keeper.Get(ctx, l.Name())
	if err = errors.Join(err, l.Release(context.WithoutCancel(ctx))); err != nil || r.Granted.IsZero() {
		return 0, 0, err
	}
	return r.Granted.Sub(start.Add(half)), half, nil
}

func (a *app) tuneCommand() *cobra.Command {
	in := advise.Input{}
	c := a.probing("tune", "Measure the store, then advise a TTL", "holdfast tune --crashes 0.01 --stalls 0.05 --stall 2s --loss-cost 30",
		500, func(ctx context.Context, o *opened, samples int) error {
			took, _, err := a.measure(ctx, o, "holdfast-check", samples, 1)
			if err != nil {
				return err
			}
			in.RoundTrip, in.Tail = took.percentile(50), took.percentile(99.9)
			in.Least = max(lease.MinTTL, o.store.Limits().MinTTL)
			x, err := advise.TTL(in)
			if err != nil {
				return usage("%w", err)
			}
			fmt.Fprintf(a.log, "holdfast: %s; round trips: p50 %s, p99.9 %s\n", o.where, span(in.RoundTrip), span(in.Tail))
			return a.print(nil, "advice", map[string]any{
				"ttl_ms": millis(x.TTL), "renewal_ms": millis(x.Renewal), "margin_ms": millis(x.Margin),
				"outage_ms": millis(x.Outage), "longest_ms": millis(x.Longest),
				"false_losses_per_hour": x.FalseLosses,
			})
		})
	c.Long = c.Short + `.
It weighs outages after crashes against leases that are lost without need: docs/choosing-a-ttl.md. Costs
are in any one unit. With --read-only it measures reads.`
	f := c.Flags()
	f.Float64Var(&in.Crashes, "crashes", 0.01, "crashes of a holder an hour")
	f.Float64Var(&in.OutageCost, "outage-cost", 1, "what a second without a holder costs")
	f.Float64Var(&in.Stalls, "stalls", 0.05, "times an hour at which renewals stop arriving")
	f.DurationVar(&in.Stall, "stall", time.Second, "how long such a time is in the mean")
	f.Float64Var(&in.FalseLossCost, "loss-cost", 20, "what it costs if a holder that lives loses its lease")
	return c
}

func (a *app) benchCommand() *cobra.Command {
	parallel := 8
	c := a.probing("bench", "Measure how fast leases are acquired and released", "holdfast bench -n 10000 --parallel 32",
		1000, func(ctx context.Context, o *opened, samples int) error {
			switch {
			case a.readOnly:
				return usage("bench writes: leave --read-only out, or use check")
			case parallel < 1 || parallel > 1000:
				return usage("--parallel: %d, must be from 1 to 1000", parallel)
			}
			start := time.Now()
			acquired, released, err := a.measure(ctx, o, "holdfast-bench", samples, parallel)
			if err != nil {
				return err
			}
			rate := float64(samples) / time.Since(start).Seconds()
			err = a.print(nil, "times", boxed([]summary{acquired.summary("acquire"), released.summary("release")}, nil))
			if err != nil || a.output != "table" && a.output != "wide" {
				return err
			}
			if _, err = fmt.Fprintf(a.out, "\n%.0f leases a second. Acquire:\n", rate); err != nil {
				return err
			}
			return a.rows(acquired.histogram())
		})
	c.Long = c.Short + `.
It uses names under holdfast-bench/, and loads the store: mind who else uses it.`
	c.Flags().IntVar(&parallel, "parallel", parallel, "how many at once")
	return c
}

// histogram draws how many took how long, in steps of a factor of two.
func (t times) histogram() (rows [][]string) {
	const width = 50
	all := len(t)
	for step := time.Microsecond; len(t) > 0; step *= 2 {
		n, _ := slices.BinarySearch(t, step+1)
		if n > 0 || len(rows) > 0 {
			rows = append(rows, []string{"to " + span(step), fmt.Sprint(n), strings.Repeat("█", n*width/all)})
		}
		t = t[n:]
	}
	return rows
}

// schema is what a store with a schema can do.
type schema interface {
	Check(context.Context) error
	Migrate(context.Context) error
	Schema() string
}

func (a *app) migrateCommand() *cobra.Command {
	apply := false
	c := a.command("migrate", "Show, or with --apply make, a store's schema", "holdfast migrate --store postgres://app@db/app",
		"", func(ctx context.Context, _ []string) error {
			if apply && a.readOnly {
				return usage("migrate --apply writes: leave --read-only out")
			}
			return a.over(ctx, func(o *opened) (err error) {
				ctx, stop := context.WithTimeout(ctx, time.Minute)
				defer stop()
				s, has := o.store.(schema)
				if !has {
					_, err = fmt.Fprintf(a.out, "%s: nothing to migrate\n", o.where)
					return err
				}
				if apply {
					if err = s.Migrate(ctx); err != nil {
						return o.say(err)
					}
				}
				if err = s.Check(ctx); err != nil && errors.Is(err, store.ErrDenied) && !apply {
					fmt.Fprintf(a.log, "holdfast: %s; --apply would run this, or what an older one lacks of it:\n", safe(err.Error()))
					_, err = fmt.Fprint(a.out, s.Schema())
				} else if err == nil {
					_, err = fmt.Fprintf(a.out, "%s: this version can use the schema\n", o.where)
				}
				return err
			})
		})
	c.Long = c.Short + `.
It says whether this version can use the schema, and prints the statements that make it.`
	c.Flags().BoolVar(&apply, "apply", false, "make it, or bring an older one up to date")
	return c
}
