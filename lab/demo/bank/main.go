//go:build linux

// Package bank shows bank accounts that live on several nodes, survive what
// befalls these, and judges itself.
//
//	go run -C lab . run sharding -etcd none [-ttl 2s] [-duration 12s] [-v]
//
// Four nodes, each an actor system with a remote of its own on the loopback
// interface, share a store of leases in memory. Together they host accounts: each
// belongs to one of 64 shards, and each shard to one node. A bank, on a node that
// hosts nothing, transfers money from account to account: it asks one for a
// withdrawal and another for a deposit, and each again until there is a receipt.
// Besides it tells every account numbered memos. Meanwhile:
//
//  1. A fifth node joins, and gets its part of the shards.
//  2. A node leaves as it should: it hands its shards over, and then leaves.
//  3. The node that coordinates is killed: in the middle of a withdrawal its
//     accounts and its Keeper freeze, then its connections are cut. It releases
//     nothing, so its accounts live elsewhere when its leases have ended, and not
//     before. Those of the other nodes go on as if nothing had been.
//  4. It thaws, with work half done. Its gates let nothing pass, and the ledger
//     refuses what it writes.
//
// All work goes into a ledger that is fenced by the tokens of the shards' leases.
// The verdict is computed from it, from every pass through the gates, and from what
// the bank was told. The exit status is 0 if the verdict is good, 1 if it is not or
// there is none, and 2 if the flags make no sense.
//
// # Processes and etcd
//
//	go run -C lab . run sharding [-ttl 2s] [-duration 12s] [-v]
//
// starts an etcd (built on first use, which takes about a minute) and four nodes as
// processes of their own. A fifth joins, one is told to leave (SIGTERM), and the one
// that coordinates is killed with SIGKILL. The ledger is kept in etcd, where every
// write is refused but the present holder's. The verdict is the same, computed by
// this process: what was written it learns from etcd, what passed the gates from
// the journals of the nodes, and when, from the one monotonic clock of the machine.
//
//	go run -C lab . run sharding -etcd http://127.0.0.1:2379[,…] [-id node-1] [-listen 127.0.0.1:0] [-ttl 10s] [-journal] [-v]
//
// runs one node, until SIGINT or SIGTERM: start as many as you like, and do to them
// what you like. With -journal it prints what happens as lines of JSON, with the
// machine's monotonic time in nanoseconds, and ends when its standard input does.
//
// # Reading
//
// In order: account.go (the entity), bank.go (who asks), journal.go (the fenced
// resource), peer.go, node.go and freeze.go (a node, and how it is killed), run.go
// (the course of events), evidence.go and judge.go (the verdict). With etcd:
// process.go (one node), ledger.go (the fenced resource), report.go, audit.go (the
// evidence), local.go (the course of events). What is not about sharding is in
// lab/demo/stage.
package bank

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// Main runs the program, and returns the exit status.
func Main(ctx context.Context, args []string, in io.Reader, out, logs io.Writer) int {
	return stage.Program{
		Name:          "sharding",
		Duration:      12 * time.Second,
		DurationUsage: "how long the bank is open, beside the time that moves take; at least the TTL and 2s",
		VerboseUsage:  "print what the Keepers and regions log as well",
		Run:           func(c stage.Config, w io.Writer) (stage.Verdict, error) { return run(config{Config: c}, w) },
		Local: func(ctx context.Context, c stage.Config, w io.Writer) (stage.Verdict, error) {
			return runLocal(ctx, config{Config: c}, w)
		},
		Node: runProcess,
	}.Main(ctx, args, in, out, logs)
}
