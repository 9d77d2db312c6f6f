//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// The bounds of ours that check holds.
const (
	// maxStatements is what holding names may ask of the server each second, by names: a
	// statement renews a session, of up to 1000 names.
	maxStatementsOne  = 15.0
	maxStatementsMany = 60.0
	// maxGrowth is what renewals may add to the tables, in bytes, where no old transaction keeps
	// dead rows.
	maxGrowth = 4 << 20
	// overdue is how long after the TTL of a dead holder its name is another's, on a machine that
	// is busy.
	overdue = 10 * time.Second
)

// check returns what is broken of ours.
func (f figures) check(p plan) error {
	var broken []error
	bad := func(format string, args ...any) { broken = append(broken, fmt.Errorf("broken: "+format, args...)) }
	for _, l := range f.statements {
		if l.way != holdfast {
			continue
		}
		bound := maxStatementsMany
		if l.names == 1 { // with another that waits, too
			bound = maxStatementsOne
		}
		if got, _, _ := spread(l.statements); got > bound {
			bad("%.1f statements per second for %d names, at most %.0f", got, l.names, bound)
		} else if got == 0 {
			bad("no statements for %d names: nothing was counted", l.names)
		}
	}
	for s, took := range f.handOvers[holdfast] {
		bound := p.ttl + overdue
		if s == syscall.SIGTERM {
			bound = p.ttl / 2 // else it was no release that handed it over
		}
		if got, _, _ := spread(took); got > bound {
			bad("a hand-over after %v took %v, at most %v", s, got, bound)
		}
	}
	for _, g := range f.grown {
		if g.way == holdfast && g.after-g.before > maxGrowth {
			bad("%d renewals added %d KiB, at most %d", g.renewals, (g.after-g.before)>>10, maxGrowth>>10)
		}
	}
	if got := f.beside.longest(); got >= p.patience {
		bad("a call beside an idle transaction took %v, at most %v", got, p.patience)
	}
	if f.idle < p.idle {
		bad("the idle transaction was open for %v only", f.idle)
	}
	return errors.Join(broken...)
}

// spread is the median, the least and the most.
func spread[T cmp.Ordered](all []T) (median, least, most T) {
	if len(all) == 0 {
		return median, least, most
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2], s[0], s[len(s)-1]
}

func durations(all []time.Duration) string {
	m, least, most := spread(all)
	return fmt.Sprintf("%s (%s–%s)", short(m), short(least), short(most))
}

func short(d time.Duration) string {
	switch {
	case d == never:
		return "never"
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
}

func numbers(all []float64) string {
	m, least, most := spread(all)
	return fmt.Sprintf("%.1f (%.1f–%.1f)", m, least, most)
}

// print writes tables: medians, and the least and the most in brackets.
func (f figures) print(w io.Writer) {
	out := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	out("Load of the machine before %s, after %s. Medians (least–most).", f.load[0], f.load[1])
	for _, l := range []struct {
		title string
		latency
	}{{"Alone", f.alone}, {fmt.Sprintf("Beside a transaction that is idle for %v", f.idle.Round(time.Second)), f.beside}} {
		if l.acquire == nil {
			continue
		}
		out("\n%s\n\n| | acquire p50 | p99 | longest | renew p50 | p99 | longest |\n|---|---|---|---|---|---|---|", l.title)
		for _, way := range ways {
			a, r := l.acquire[way], l.renew[way]
			out("| %s | %s | %s | %s | %s | %s | %s |", way, durations(a.p50), durations(a.p99), short(a.longest), durations(r.p50), durations(r.p99), short(r.longest))
		}
		out("\nA watch is told, p50 %s, p99 %s, longest %s.", durations(l.watch.p50), durations(l.watch.p99), short(l.watch.longest))
	}
	if f.handOvers != nil {
		out("\n| hand-over | released (SIGTERM) | kill -9 of the holder | the holder stopped (SIGSTOP) |\n|---|---|---|---|")
		for _, way := range ways {
			h := f.handOvers[way]
			out("| %s | %s | %s | %s |", way, durations(h[syscall.SIGTERM]), durations(h[syscall.SIGKILL]), durations(h[syscall.SIGSTOP]))
		}
	}
	if f.statements != nil {
		out("\n| | names | statements per second | the server's ms per second |\n|---|---|---|---|")
		for _, l := range f.statements {
			names := fmt.Sprint(l.names)
			if l.waiting {
				names += ", another waits"
			}
			if l.looks {
				names += ", no listener"
			}
			out("| %s | %s | %s | %s |", l.way, names, numbers(l.statements), numbers(l.busy))
		}
	}
	for _, g := range []struct {
		title string
		all   []growth
	}{{"Renewals, autovacuum on", f.grown}, {"An hour's renewals beside the idle transaction", f.grownBeside}} {
		if g.all == nil {
			continue
		}
		out("\n%s\n\n| | rows renewed | renewals | took | tables before | after |\n|---|---|---|---|---|---|", g.title)
		for _, x := range g.all {
			out("| %s | %d | %d | %s | %d KiB | %d KiB |", x.way, x.sessions, x.renewals, short(x.took), x.before>>10, x.after>>10)
		}
	}
}
