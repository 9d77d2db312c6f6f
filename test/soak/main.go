//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// check measures into r. An error means that it could not.
type check func(ctx context.Context, args []string, r *report) error

var checks = map[string]check{"names": names, "compare": compare, "stops": stops, "outage": outage, "renewal": renewalCheck,
	"handovers": handovers, "kills": kills, "many": many, "rolling": rolling, "shardkills": shardKills, "shards": shardsCheck, "load": loadCheck,
	"congestion": congestion, "backlog": backlog, "slowlink": slowLink, "singletonload": singletonLoad, "reshard": reshard, "restore": restoreCheck}

func main() {
	if lab.IsBurner() {
		lab.Burn()
	}
	if os.Getenv(holderEnv) != "" {
		if err := holder(os.Getenv(holderEnv)); err != nil {
			fmt.Fprintln(os.Stderr, "soak holder:", err)
			os.Exit(2)
		}
		return
	}
	if arg := os.Getenv(clusterEnv); arg != "" {
		if err := runNode(arg); err != nil {
			fmt.Fprintln(os.Stderr, "soak node:", err)
			os.Exit(2)
		}
		return
	}
	if arg := os.Getenv(mailEnv); arg != "" {
		if err := runMailNode(arg); err != nil {
			fmt.Fprintln(os.Stderr, "soak node:", err)
			os.Exit(2)
		}
		return
	}
	if len(os.Args) < 2 || checks[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: soak names|compare|stops|outage|renewal|handovers|kills|many|rolling|shardkills|shards|load|congestion|backlog|slowlink|singletonload|reshard|restore [flags]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r := &report{out: os.Stdout}
	err := checks[os.Args[1]](ctx, os.Args[2:], r)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case r.broken > 0:
		fmt.Printf("%d bounds broken\n", r.broken)
		os.Exit(1)
	case r.kept == 0:
		fmt.Fprintln(os.Stderr, "soak: nothing was judged")
		os.Exit(2)
	}
	fmt.Printf("all %d bounds kept\n", r.kept)
}
