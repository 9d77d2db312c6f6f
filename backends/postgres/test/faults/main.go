//go:build linux

// Faults breaks PostgreSQL under nodes that contend for leases, and says what they believed, and
// how long recovery took.
//
//	go run ./test/faults                 every fault, as a table
//	go run ./test/faults -run Clock      those whose name has that
//	go run ./test/faults -failovers 50   asynchronous fail-overs: how often two hold a name
//	go run ./test/faults -failovers 10 -lag 200ms -behind 5s -cut   with replication that takes that
//	long, a standby whose clock is behind, and one of three nodes cut off for a TTL
//	go run ./test/faults -renewals 1000000          bloat of renewals, with autovacuum and without
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ttl := flag.Duration("ttl", 3*time.Second, "TTL of the leases")
	only := flag.String("run", "", "faults whose name has this")
	failovers := flag.Int("failovers", 0, "asynchronous fail-overs, in place of faults")
	behind := flag.Duration("behind", 0, "how far the standby's clock is behind, of fail-overs")
	lag := flag.Duration("lag", 0, "delay of replication, of fail-overs")
	cut := flag.Bool("cut", false, "one node is cut off for a TTL, of fail-overs")
	renewals := flag.Int("renewals", 0, "renewals, in place of faults")
	flag.Parse()
	switch {
	case *failovers > 0:
		return measureFailovers(ctx, *ttl, *failovers, gap{*behind, *lag, *cut})
	case *renewals > 0:
		return measureRenewals(ctx, *renewals)
	}
	fmt.Printf("TTL %v\n\n| fault | what holders believe | recovery |\n|---|---|---|\n", *ttl)
	for _, f := range faults() {
		if !strings.Contains(f.name, *only) {
			continue
		}
		r, err := play(ctx, *ttl, f)
		if err == nil {
			err = r.err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Printf("| %s | %s | %s |\n", f.title, r.beliefs(), r.recovery())
	}
	return nil
}
