// Command singleton shows a singleton that survives what befalls its hosts, and
// judges itself.
//
//	go run ./examples/singleton [-ttl 2s] [-duration 16s] [-v]
//
// Three nodes, each an actor system with a remote of its own on the loopback
// interface, share a store of leases in memory. One of them hosts the singleton,
// a scheduler that ticks and works off jobs. A fourth node hosts nothing; its
// client sends numbered jobs all the while, and sends each again until it is
// acknowledged. Meanwhile:
//
//  1. The host is killed: in the middle of a job its actors and its Keeper
//     freeze, then its connections are cut. It releases nothing, so the next
//     host starts when the lease has ended, and not before.
//  2. The next host leaves as it should: it stops the scheduler, releases the
//     lease, and the third takes over at once.
//  3. The first one thaws, with mail in its mailbox and a write half done. Its
//     gate lets nothing pass, and the journal refuses the write.
//
// All work goes into a journal that is fenced by the lease's token. The verdict
// is computed from it, from every pass through the gates, and from what the
// client was told. The exit status is 0 if the verdict is good, 1 if it is not
// or there is none, and 2 if the flags make no sense.
//
// The files, in reading order: scheduler.go (the singleton), client.go,
// journal.go (the fenced resource), node.go and freeze.go (a node, and how it
// is killed), run.go (the course of events), judge.go (the verdict).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

func main() {
	var cfg config
	flag.DurationVar(&cfg.ttl, "ttl", 2*time.Second, "how long a lease outlives its last renewal")
	flag.DurationVar(&cfg.duration, "duration", 16*time.Second, "how long jobs are sent, at least the TTL and 2s")
	flag.BoolVar(&cfg.verbose, "v", false, "print what the Keepers and managers log as well")
	flag.Parse()

	v, err := run(cfg, os.Stdout)
	switch {
	case errors.Is(err, lease.ErrInvalid):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "no verdict:", err)
		os.Exit(1)
	case !v.good():
		os.Exit(1)
	}
}
