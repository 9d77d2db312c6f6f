//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

func TestMain(m *testing.M) {
	if h := os.Getenv(holderEnv); h != "" {
		os.Exit(holderMain(h))
	}
	goleak.VerifyTestMain(m)
}

// tiny is a plan that takes some seconds.
func tiny() plan {
	return plan{ttl: 5 * time.Second, rounds: 1, ops: 3, handOvers: 1, some: 20, many: 500, windows: 1,
		renewals: 1000, hourly: 10, idle: time.Second, patience: 30 * time.Second}
}

// TestCompare: every figure comes out, and no bound is broken.
func TestCompare(t *testing.T) {
	tier.NightlyOnly(t, "TestCheckFindsWhatIsBroken judges figures")
	postgrestest.Skip(t)
	p := tiny()
	f, err := measure(t.Context(), p)
	var b strings.Builder
	f.print(&b)
	t.Log(b.String())
	require.NoError(t, err)
	require.NoError(t, f.check(p))
	for _, way := range ways {
		require.Len(t, f.alone.acquire[way].p50, p.rounds)
		require.Len(t, f.beside.renew[way].p99, p.rounds)
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP} {
			require.Len(t, f.handOvers[way][s], p.handOvers)
		}
	}
	require.Equal(t, never, f.handOvers[advisory][syscall.SIGSTOP][0], "a holder that is stopped keeps its connection")
	require.Greater(t, f.handOvers[holdfast][syscall.SIGKILL][0], p.ttl/3, "nothing but the end of the TTL tells that it is dead")
	require.Len(t, f.statements, 13)
	for _, l := range f.statements {
		require.NotZero(t, l.statements[0], "%s, %d names", l.way, l.names)
	}
	require.Equal(t, 1000, f.grown[0].renewals)
	require.NotZero(t, f.grown[1].after)
	require.Len(t, f.grownBeside, 3)
}

// TestTransactionThatHoldsUp: a transaction that does keep calls waiting is found.
func TestTransactionThatHoldsUp(t *testing.T) {
	tier.NightlyOnly(t, "TestCheckFindsWhatIsBroken judges figures")
	postgrestest.Skip(t)
	p := tiny()
	p.patience, p.holds = 2*time.Second, "LOCK TABLE holdfast.session"
	b, err := newBed(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	require.ErrorContains(t, b.besideIdle(t.Context(), p, &figures{}), "beside an idle transaction")
}

// TestCheckFindsWhatIsBroken: each bound.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	p := whole()
	good := func() figures {
		return figures{
			statements: []*load{{way: holdfast, names: 1, statements: []float64{1}}, {way: holdfast, names: 100_000, statements: []float64{20}},
				{way: advisory, names: 1000, waiting: true, statements: []float64{1000}}},
			handOvers: map[string]map[syscall.Signal][]time.Duration{holdfast: {syscall.SIGTERM: {time.Second}, syscall.SIGKILL: {p.ttl}},
				advisory: {syscall.SIGSTOP: {never}}},
			grown:  []growth{{way: holdfast, after: 1 << 20}, {way: table, after: 1 << 30}},
			beside: latency{acquire: map[string]*calls{holdfast: {longest: time.Second}}, renew: map[string]*calls{holdfast: {}}},
			idle:   p.idle,
		}
	}
	require.NoError(t, good().check(p))
	for what, breaks := range map[string]func(f *figures){
		"statements of one":  func(f *figures) { f.statements[0].statements = []float64{maxStatementsOne + 1} },
		"statements of many": func(f *figures) { f.statements[1].statements = []float64{maxStatementsMany + 1} },
		"nothing counted":    func(f *figures) { f.statements[0].statements = []float64{0} },
		"planned":            func(f *figures) { f.handOvers[holdfast][syscall.SIGTERM] = []time.Duration{p.ttl} },
		"killed":             func(f *figures) { f.handOvers[holdfast][syscall.SIGKILL] = []time.Duration{never} },
		"growth":             func(f *figures) { f.grown[0].after = 1 << 30 },
		"held up":            func(f *figures) { f.beside.acquire[holdfast].longest = p.patience },
		"renewal held up":    func(f *figures) { f.beside.renew[holdfast].longest = p.patience },
		"watch held up":      func(f *figures) { f.beside.watch.longest = p.patience },
		"not idle":           func(f *figures) { f.idle = time.Second },
	} {
		f := good()
		breaks(&f)
		require.ErrorContains(t, f.check(p), "broken", what)
	}
}

// TestBeside: calls are made for all of the time for which a transaction is idle.
func TestBeside(t *testing.T) {
	tier.NightlyOnly(t, "TestBesideFindsWhatIsBroken judges figures")
	postgrestest.Skip(t)
	p := tiny()
	const idle = sections * 250 * time.Millisecond
	var out strings.Builder
	require.NoError(t, measureBeside(t.Context(), p, idle, &out))
	t.Log(out.String())
	require.Len(t, strings.Split(strings.Split(out.String(), "\n\n")[0], "\n"), 2+1+sections, "title, before, sections")
	require.Contains(t, out.String(), "| none yet |")

	p.patience, p.holds = 2*time.Second, "LOCK TABLE holdfast.session"
	require.ErrorContains(t, measureBeside(t.Context(), p, idle, &out), "beside an idle transaction: ")
}

// TestBesideFindsWhatIsBroken: each bound of it.
func TestBesideFindsWhatIsBroken(t *testing.T) {
	p := whole()
	good := func() *steadiness {
		var s steadiness
		for n := range sections + 1 {
			x := section{latency: newLatency(), idle: time.Duration(n) * time.Minute}
			r, one := newRound(), []time.Duration{time.Millisecond}
			for _, way := range ways {
				r.acquired[way], r.renewed[way] = one, one
			}
			r.told = one
			x.latency.add(r)
			x.many.add(one)
			s.all = append(s.all, x)
		}
		return &s
	}
	require.NoError(t, good().check(p, sections*time.Minute))
	require.ErrorContains(t, good().check(p, time.Hour), "idle for 12m0s only")
	for what, breaks := range map[string]func(x *section){
		"acquire":    func(x *section) { x.acquire[holdfast].longest = p.patience },
		"renew":      func(x *section) { x.renew[holdfast].longest = p.patience },
		"renew 100":  func(x *section) { x.many.longest = p.patience },
		"watch":      func(x *section) { x.watch.longest = p.patience },
		"no call":    func(x *section) { x.watch = calls{} },
		"no renewal": func(x *section) { x.many = calls{} },
	} {
		s := good()
		breaks(&s.all[3])
		require.ErrorContains(t, s.check(p, sections*time.Minute), "broken", what)
	}
	s := good()
	s.all = s.all[1:]
	require.ErrorContains(t, s.check(p, time.Minute), "12 sections")
}
