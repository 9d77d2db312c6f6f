//go:build linux

// Takeovers has processes take leases from each other in a file of SQLite, at random moments, while
// each of them writes to the same file in slow transactions and does not ask whether it still holds:
//
//	go run ./test/takeovers                2000 takeovers with sqlite.Guard, and 200 without
//	go run ./test/takeovers -n 20000       more of them
//	go run ./test/takeovers -processes 8 -names 12 -dir /dev/shm -seed 7
//
// No lease is released: each is taken over when its session has run out, of a holder that renewed a
// few times and writes on. Processes are killed and stopped meanwhile, also in their transactions.
// A trigger notes each takeover in the table in which the writes are noted, so that the file itself
// says which came first.
//
// It exits 1 unless with Guard no write came after a takeover from its writer, none was lost, and
// without Guard some did; 2 if it could not judge.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if arg := os.Getenv(holderEnv); arg != "" {
		os.Exit(holderMain(arg))
	}
	var o options
	flag.IntVar(&o.takeovers, "n", 2000, "takeovers with Guard; without it a tenth, at least 50")
	flag.IntVar(&o.processes, "processes", 4, "processes that take names from each other")
	flag.IntVar(&o.names, "names", 6, "names")
	flag.StringVar(&o.dir, "dir", "", "folder for the file; a temporary one if empty")
	flag.Uint64Var(&o.seed, "seed", 0, "of kills, stops and pauses; 0: another each time")
	flag.DurationVar(&o.within, "within", 20*time.Minute, "how long each half may take")
	flag.Parse()
	if o.takeovers < 1 || o.processes < 2 || o.names < 1 || o.within <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "takeovers: -n must be at least 1, -processes 2, -names 1, -within positive, and nothing else")
		os.Exit(2)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	broken, err := run(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "takeovers:", err)
		os.Exit(2)
	case len(broken) > 0:
		for _, b := range broken {
			fmt.Println("BROKEN:", b)
		}
		os.Exit(1)
	}
}

// run is both halves; broken is what must not be.
func run(ctx context.Context, o options) (broken []string, err error) {
	fmt.Printf("seed %d: %d processes, %d names\n", o.seed, o.processes, o.names)
	o.guarded = true
	with, err := race(ctx, o)
	if err != nil {
		return nil, err
	}
	fmt.Println("with Guard:", with)
	o.guarded, o.takeovers = false, max(50, o.takeovers/10)
	without, err := race(ctx, o)
	if err != nil {
		return nil, err
	}
	fmt.Println("without:   ", without)
	return check(with, without), nil
}

// check is what the two halves must not show.
func check(with, without figures) (broken []string) {
	for _, b := range []struct {
		is   bool
		says string
	}{
		{with.stale > 0, fmt.Sprintf("%d writes came after a takeover from their writer", with.stale)},
		{with.lost > 0, fmt.Sprintf("%d updates were lost", with.lost)},
		{with.missing+without.missing > 0, fmt.Sprintf("%d confirmed writes are missing", with.missing+without.missing)},
		{with.backwards+without.backwards > 0, fmt.Sprintf("%d tokens did not grow", with.backwards+without.backwards)},
		{with.writes == 0 || with.refused == 0, "with Guard nothing was written, or nothing refused: this shows nothing"},
		{with.during == 0, "no takeover was asked for in a transaction of the former holder: this shows nothing"},
		{without.stale == 0, "without Guard no stale write was seen: this shows nothing"},
	} {
		if b.is {
			broken = append(broken, b.says)
		}
	}
	return broken
}
