//go:build linux

package torture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNothing: a run without a pass, an ask in calm, a write or a healing says nothing.
var errNothing = errors.New("nothing was judged")

// Stores are the kinds of store that can be tortured; tests add theirs.
var Stores = []Store{overEtcd, overPostgres, overSQLite}

// Child runs the node that this process is, if it was started to be one: 0 or 2 is how it ended.
func Child() (code int, is bool) {
	arg := os.Getenv(nodeEnv)
	if arg == "" {
		return 0, false
	}
	if err := runNode(arg, Stores); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 2, true
	}
	return 0, true
}

// Main is the program: it returns 0, 1 if there is a violation, or 2 if it could not judge.
func Main(args []string) int {
	store, o, err := parse(Stores, args)
	if errors.Is(err, flag.ErrHelp) {
		return 2
	}
	var j *judgement
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		j, err = play(ctx, store, o, os.Stdout)
		stop()
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 2
	case len(j.violations) > 0:
		return 1
	}
	return 0
}

// parse reads the arguments of a program.
func parse(stores []Store, args []string) (store Store, o options, err error) {
	var names []string
	for _, s := range stores {
		names = append(names, s.Name)
	}
	fs := flag.NewFlagSet("torture", flag.ContinueOnError)
	chosen := fs.String("store", names[0], "of "+strings.Join(names, ", "))
	fs.DurationVar(&o.length, "for", 5*time.Minute, "how long; the last round is finished")
	fs.Uint64Var(&o.seed, "seed", 0, "of the sequence of faults; 0: another each time")
	fs.IntVar(&o.nodes, "nodes", 4, "nodes, besides the spare one that joins and leaves")
	fs.DurationVar(&o.ttl, "ttl", 2*time.Second, "TTL")
	fs.Float64Var(&o.rate, "rate", 25, "asks a second, of each node")
	fs.DurationVar(&o.storm, "storm", 12*time.Second, "a storm's length")
	fs.IntVar(&o.faults, "faults", 16, "faults of a storm, at most")
	fs.BoolVar(&o.proxied, "proxies", false, "TCP proxies, though there may be network namespaces")
	fs.BoolVar(&o.verbose, "v", false, "the nodes' logs")
	if err := fs.Parse(args); err != nil {
		return store, o, err
	}
	if fs.NArg() > 0 {
		return store, o, fmt.Errorf("unexpected %q", fs.Arg(0))
	}
	i := slices.Index(names, *chosen)
	if i < 0 {
		return store, o, fmt.Errorf("-store: %q is not known, of %s", *chosen, strings.Join(names, ", "))
	}
	return stores[i], o, check(o)
}

// check refuses flags out of bounds.
func check(o options) error {
	if o.length < time.Second || o.nodes < 2 || o.nodes >= maxNodes-1 || o.ttl < 2*time.Second || o.rate < 1 || o.rate > 1000 ||
		o.storm < time.Second || o.faults < 1 || o.faults > 1000 {
		return fmt.Errorf("-for must be at least 1s, -nodes 2 to %d, -ttl at least 2s, -rate 1 to 1000, -storm at least 1s, -faults 1 to 1000", maxNodes-2)
	}
	return nil
}

// play is one torture, from the start of the store to the report.
func play(ctx context.Context, store Store, o options, out io.Writer) (j *judgement, err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	t, err := newTorture(ctx, store, o, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.run(ctx); err != nil {
		return nil, fmt.Errorf("seed %d: %w", o.seed, err)
	}
	return t.report(ctx)
}
