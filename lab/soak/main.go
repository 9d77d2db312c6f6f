//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// check measures into r. An error means that it could not.
type check func(ctx context.Context, args []string, r *report) error

var checks = map[string]check{"handovers": handovers, "kills": kills, "many": many, "rolling": rolling, "shardkills": shardKills, "shards": shardsCheck, "load": loadCheck,
	"congestion": congestion, "backlog": backlog, "slowlink": slowLink, "singletonload": singletonLoad, "reshard": reshard, "restore": restoreCheck}

// Names are those of the checks.
func Names() []string { return slices.Sorted(maps.Keys(checks)) }

// Child runs the node that this process is, if it was started to be one: 0 or
// 2 is how it ended.
func Child() (code int, is bool) {
	for env, run := range map[string]func(string) error{clusterEnv: runNode, mailEnv: runMailNode} {
		arg := os.Getenv(env)
		if arg == "" {
			continue
		}
		if err := run(arg); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 2, true
		}
		return 0, true
	}
	return 0, false
}

// Main runs the check of that name: it returns 0, 1 if a bound is broken, or 2 if it could not measure.
func Main(name string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r := &report{out: os.Stdout}
	err := checks[name](ctx, args, r)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	case r.broken > 0:
		fmt.Printf("%d bounds broken\n", r.broken)
		return 1
	case r.kept == 0:
		fmt.Fprintln(os.Stderr, "soak: nothing was judged")
		return 2
	}
	fmt.Printf("all %d bounds kept\n", r.kept)
	return 0
}
