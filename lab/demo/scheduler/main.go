//go:build linux

// Package scheduler shows a singleton that survives what befalls its hosts, and
// judges itself.
//
//	go run -C lab . run singleton -etcd none [-ttl 2s] [-duration 16s] [-v]
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
// # Processes and etcd
//
//	go run -C lab . run singleton [-ttl 2s] [-duration 16s] [-v]
//
// starts an etcd (built on first use, which takes about a minute) and three nodes
// as processes of their own. The host is killed with SIGKILL in the middle of a
// job. The next is stopped with SIGSTOP in the middle of one, for 2.5 times the
// TTL; the third takes over, and the one that is continued has lost its lease
// before it gets to do anything. The ledger is kept in etcd, where every write is
// refused but the present holder's. The verdict is the same, computed by this
// process: what was written it learns from etcd, what passed the gates from the
// journals of the nodes, and when, from the one monotonic clock of the machine.
//
//	go run -C lab . run singleton -etcd http://127.0.0.1:2379[,…] [-id node-1] [-listen 127.0.0.1:0] [-ttl 10s] [-journal] [-v]
//
// runs one node, until SIGINT or SIGTERM: start as many as you like, and do to
// them what you like. With -journal it prints what happens as lines of JSON, with
// the machine's monotonic time in nanoseconds, and ends when its standard input
// does.
//
// # Reading
//
// In order: scheduler.go (the singleton), client.go, journal.go (the fenced
// resource), peer.go, node.go and freeze.go (a node, and how it is killed), run.go
// (the course of events), evidence.go and judge.go (the verdict). With etcd:
// process.go (one node), ledger.go (the fenced resource), report.go, audit.go (the
// evidence), local.go (the course of events). What is not about singletons is in
// lab/demo/stage.
package scheduler

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// Main runs the program, and returns the exit status.
func Main(ctx context.Context, args []string, in io.Reader, out, logs io.Writer) int {
	return stage.Program{
		Name:          "singleton",
		Duration:      16 * time.Second,
		DurationUsage: "how long jobs are sent, at least the TTL (with -etcd local 3.5 times) and 2s",
		VerboseUsage:  "print what the Keepers and managers log as well",
		Run:           run,
		Local:         runLocal,
		Node:          runProcess,
	}.Main(ctx, args, in, out, logs)
}
