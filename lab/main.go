//go:build unix

// Lab runs the checks that take more than one `go test`.
//
//	go run -C lab . commit         the tests of .ci/run: every module once, and -race where it finds something
//	go run -C lab . all            the tests of every module but the root
//	go run -C lab . nightly        the long checks of .ci/nightly; goes on where it stopped
//	go run -C lab . nightly -only torture,load -again
//	go run -C lab . run grains     scenarios by name, or all: something is started, broken and judged
//	go run -C lab . run all -short -seed 7
//	go run -C lab . simulate       many histories on fake time; see package simulate
//	go run -C lab . etcd           an etcd to develop with, on 127.0.0.1:2379
//	go run -C lab . list           the steps of commit and nightly, and the scenarios
//	go run -C lab . planted        known bugs, one at a time: which check finds each
//	go run -C lab . planted -only 'pg-guard.*' -in backends/postgres -from NAME
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/checks"
	"github.com/holdfast-go/holdfast/lab/leases"
	"github.com/holdfast-go/holdfast/lab/planted"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lab/simulate"
)

func main() {
	if filepath.Base(os.Args[0]) == checks.LaneName {
		fail(checks.Lane())
	}
	root, err := filepath.Abs("..")
	fail(err)
	run, err := checks.New(root, os.Stdout)
	fail(err)
	defer run.Close()
	command, args := "", []string(nil)
	if len(os.Args) > 1 {
		command, args = os.Args[1], os.Args[2:]
	}
	flags := flag.NewFlagSet("lab "+command, flag.ExitOnError)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed := false
	switch command {
	case "commit":
		_ = flags.Parse(args)
		lanes, err := run.Commit()
		fail(err)
		passed = run.Lanes(ctx, lanes...)
	case "all":
		_ = flags.Parse(args)
		steps, err := run.Modules()
		fail(err)
		passed = run.Lanes(ctx, steps)
	case "nightly":
		only := flags.String("only", "", "names of steps, separated by commas; empty: all of them")
		again := flags.Bool("again", false, "also run steps that passed on this commit before")
		within := flags.Duration("within", 6*time.Hour, "time for all steps together")
		_ = flags.Parse(args)
		steps, err := run.Nightly()
		fail(err)
		var names []string
		if *only != "" {
			names = strings.Split(*only, ",")
		}
		passed, err = run.Night(ctx, steps, names, *again, *within)
		fail(err)
	case "planted":
		only := flags.String("only", "", "regular expression that matches the whole name of each; empty: all")
		in := flags.String("in", "", "folder in which each changes a file, as backends/postgres")
		from := flags.String("from", "", "the first, in the order of names")
		within := flags.Duration("within", 6*time.Minute, "time for each check")
		_ = flags.Parse(args)
		bugs, err := planted.Load("planted/bugs")
		fail(err)
		bugs, err = planted.Choose(bugs, *only, *in, *from)
		fail(err)
		missed := (&planted.Hunter{Root: root, Within: *within, Out: os.Stdout}).Hunt(ctx, bugs)
		fmt.Printf("%d of %d planted bugs were found; missed: %v\n", len(bugs)-len(missed), len(bugs), missed)
		passed = len(missed) == 0
	case "run":
		r := &scene.Run{Out: os.Stdout}
		flags.BoolVar(&r.Short, "short", false, "the size of the commit tier")
		flags.Uint64Var(&r.Seed, "seed", 0, "of everything that is drawn; 0: another each time")
		flags.DurationVar(&r.For, "for", 0, "how long load lasts; 0: as long as the scenario says")
		flags.StringVar(&r.Store, "store", "", "etcd, postgres or sqlite; empty: the scenario's own")
		var names []string
		for ; len(args) > 0 && !strings.HasPrefix(args[0], "-"); args = args[1:] {
			names = append(names, args[0])
		}
		_ = flags.Parse(args)
		passed, err = scene.Play(ctx, scenarios, append(names, flags.Args()...), r)
		fail(err)
	case "simulate":
		o := simulate.Flags(flags, root)
		_ = flags.Parse(args)
		fail(o.Play(ctx))
		passed = true
	case "etcd":
		listen := flags.String("listen", "127.0.0.1:2379", "host:port for clients; port 0 is any that is free")
		_ = flags.Parse(args)
		fail(leases.ServeEtcd(ctx, *listen))
		passed = true
	case "list":
		fail(run.List())
		for _, s := range scenarios {
			fmt.Printf("scenario %-26s %s\n", s.Name, s.About)
		}
		passed = true
	default:
		fail(fmt.Errorf("%q is no command: commit, all, nightly, run, simulate, etcd, planted or list", command))
	}
	if !passed {
		run.Close()
		os.Exit(1)
	}
}

// scenarios are those of this system.
var scenarios []scene.Scenario

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(2)
	}
}
