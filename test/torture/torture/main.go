//go:build linux

package torture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/test/cluster"
)

// errNothing: a run without a pass, an ask in calm, a write or a healing says nothing.
var errNothing = errors.New("nothing was judged")

// Main is a program that tortures, and each of the nodes that it starts.
func Main() {
	if cluster.IsBurner() {
		cluster.Burn()
	}
	if arg := os.Getenv(nodeEnv); arg != "" {
		if err := runNode(arg); err != nil {
			fmt.Fprintln(os.Stderr, "torture:", err)
			os.Exit(2)
		}
		return
	}
	var o options
	flag.DurationVar(&o.length, "for", 5*time.Minute, "how long; the last round is finished")
	flag.Uint64Var(&o.seed, "seed", 0, "of the sequence of faults; 0: another each time")
	flag.IntVar(&o.nodes, "nodes", 4, "nodes, besides the spare one that joins and leaves")
	flag.DurationVar(&o.ttl, "ttl", 2*time.Second, "TTL")
	flag.Float64Var(&o.rate, "rate", 25, "asks a second, of each node")
	flag.DurationVar(&o.storm, "storm", 12*time.Second, "a storm's length")
	flag.IntVar(&o.faults, "faults", 16, "faults of a storm, at most")
	flag.BoolVar(&o.proxied, "proxies", false, "TCP proxies, though there may be network namespaces")
	flag.BoolVar(&o.verbose, "v", false, "the nodes' logs")
	flag.Parse()
	bad, err := check(o)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		bad, err = run(ctx, o)
		stop()
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	case bad > 0:
		os.Exit(1)
	}
}

// check refuses flags out of bounds.
func check(o options) (int, error) {
	if flag.NArg() > 0 {
		return 0, fmt.Errorf("unexpected %q", flag.Arg(0))
	}
	if o.length < time.Second || o.nodes < 2 || o.nodes >= maxNodes-1 || o.ttl < 2*time.Second || o.rate < 1 || o.rate > 1000 ||
		o.storm < time.Second || o.faults < 1 || o.faults > 1000 {
		return 0, fmt.Errorf("-for must be at least 1s, -nodes 2 to %d, -ttl at least 2s, -rate 1 to 1000, -storm at least 1s, -faults 1 to 1000", maxNodes-2)
	}
	return 0, nil
}

// run is one torture, from the start of etcd to the report.
func run(ctx context.Context, o options) (bad int, err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	t, err := newTorture(ctx, o, os.Stdout)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.run(ctx); err != nil {
		return 0, fmt.Errorf("seed %d: %w", o.seed, err)
	}
	j, err := t.report(ctx)
	if err != nil {
		return 0, err
	}
	return len(j.violations), nil
}
