// Command sharding shows bank accounts that live on several nodes, survive what
// befalls these, and judges itself.
//
//	go run ./examples/sharding [-ttl 2s] [-duration 12s] [-v]
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
//	go run ./examples/sharding -etcd local [-ttl 2s] [-duration 12s] [-v]
//
// starts an etcd (built on first use, which takes about a minute) and four nodes as
// processes of their own. A fifth joins, one is told to leave (SIGTERM), and the one
// that coordinates is killed with SIGKILL. The ledger is kept in etcd, where every
// write is refused but the present holder's. The verdict is the same, computed by
// this process: what was written it learns from etcd, what passed the gates from
// the journals of the nodes, and when, from the one monotonic clock of the machine.
//
//	go run ./examples/sharding -etcd http://127.0.0.1:2379[,…] [-id node-1] [-listen 127.0.0.1:0] [-ttl 10s] [-journal] [-v]
//
// runs one node, until SIGINT or SIGTERM: start as many as you like, and do to them
// what you like. With -journal it prints what happens as lines of JSON, with the
// machine's monotonic time in nanoseconds, and ends when its standard input does.
//
// # Reading
//
// In order: account.go (the entity), bank.go (who asks), journal.go (the fenced
// resource), peer.go, node.go and freeze.go (a node, and how it is killed), run.go
// (the course of events), judge.go (the verdict). With etcd: process.go (one
// node), ledger.go (the fenced resource), report.go, child.go (a node as seen from
// outside), audit.go (the evidence), local.go (the course of events).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

func main() {
	os.Exit(program(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// program returns the exit status.
func program(ctx context.Context, args []string, in io.Reader, out, logs io.Writer) int {
	var cfg config
	fs := flag.NewFlagSet("sharding", flag.ContinueOnError)
	fs.SetOutput(logs)
	fs.DurationVar(&cfg.ttl, "ttl", 2*time.Second, "how long a lease outlives its last renewal")
	fs.DurationVar(&cfg.duration, "duration", 12*time.Second, "how long the bank is open, beside the time that moves take; at least the TTL and 2s")
	fs.BoolVar(&cfg.verbose, "v", false, "print what the Keepers and regions log as well")
	where := fs.String("etcd", "", "`local`, or the endpoints of an etcd to run one node on; default: all in this process")
	fs.StringVar(&cfg.id, "id", fmt.Sprintf("node-%d", os.Getpid()), "the node's name, with -etcd URL")
	fs.StringVar(&cfg.listen, "listen", "127.0.0.1:0", "where the node listens, with -etcd URL")
	fs.BoolVar(&cfg.journal, "journal", false, "print lines of JSON, and end when standard input does, with -etcd URL")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0:
		fmt.Fprintf(logs, "%v: %q, there are no arguments but flags\n", lease.ErrInvalid, fs.Arg(0))
		return 2
	}

	if *where != "" { // otherwise there is nothing to leave behind
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	var v verdict
	var err error
	switch *where {
	case "":
		v, err = run(cfg, out)
	case "local":
		v, err = runLocal(ctx, cfg, out)
	default:
		cfg.endpoints = strings.Split(*where, ",")
		if err = runProcess(ctx, cfg, in, out, logs); err == nil {
			return 0
		}
	}
	switch {
	case errors.Is(err, lease.ErrInvalid):
		fmt.Fprintln(logs, err)
		return 2
	case err != nil && len(cfg.endpoints) > 0:
		fmt.Fprintln(logs, err)
		return 1
	case err != nil:
		fmt.Fprintln(logs, "no verdict:", err)
		return 1
	case !v.good():
		return 1
	}
	return 0
}
