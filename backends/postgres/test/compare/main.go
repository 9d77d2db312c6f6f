//go:build linux

// Compare runs leases in PostgreSQL beside what people use there: session advisory locks that are
// polled for, and a leader table in the manner of River's. All are on one server, in one run.
//
//	go run ./test/compare                 all figures, as tables
//	go run ./test/compare -idle 1h        with a foreign transaction that was idle for so long
//	go run ./test/compare -names 10000    fewer names, for a machine that is busy
//	go run ./test/compare -beside 1h      in place of that, calls at a modest rate for all of the time
//	                                      for which a foreign transaction is idle
//
// It exits 1 if a bound of ours is broken: see figures.check and steadiness.check.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// plan says how much is measured.
type plan struct {
	ttl       time.Duration // ours and the leader table's, renewed each third of it
	rounds    int           // of acquisitions, with a p50 and a p99 each
	ops       int           // acquisitions in a round
	handOvers int           // of each kind
	some      int           // names, where there are several
	many      int           // names, of ours alone
	windows   int           // over which statements are counted
	renewals  int           // for bloat
	hourly    int           // renewals of one session in an hour
	idle      time.Duration // how old the foreign transaction is at the least
	holds     string        // what it does first
	patience  time.Duration // what one call may take
}

// whole is what is published.
func whole() plan {
	return plan{ttl: 15 * time.Second, rounds: 5, ops: 200, handOvers: 5, some: 1000, many: 100_000, windows: 5,
		renewals: 1_000_000, hourly: 720, idle: time.Minute, patience: 10 * time.Second}
}

func main() {
	if h := os.Getenv(holderEnv); h != "" {
		os.Exit(holderMain(h))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := whole()
	flag.DurationVar(&p.ttl, "ttl", p.ttl, "TTL of leases and of the leader table's row")
	flag.IntVar(&p.ops, "ops", p.ops, "acquisitions in each of five rounds")
	flag.IntVar(&p.many, "names", p.many, "the largest number of names")
	flag.IntVar(&p.renewals, "renewals", p.renewals, "renewals for bloat")
	flag.DurationVar(&p.idle, "idle", p.idle, "age of the idle transaction")
	beside := flag.Duration("beside", 0, "in place of all else: for how long a transaction is idle, and calls are made beside it")
	flag.Parse()
	if *beside > 0 {
		if err := measureBeside(ctx, p, *beside, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	f, err := measure(ctx, p)
	f.print(os.Stdout)
	if err == nil {
		err = f.check(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
