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
	passed := false
	if err := scene.Try(func() { passed = carryOut() }); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}

// carryOut runs what the arguments say, and reports whether it passed.
func carryOut() (passed bool) {
	if filepath.Base(os.Args[0]) == checks.LaneName {
		checks.Lane()
	}
	root := scene.Must(filepath.Abs(".."))
	run := checks.New(root, os.Stdout)
	defer run.Close()
	command, args := "", []string(nil)
	if len(os.Args) > 1 {
		command, args = os.Args[1], os.Args[2:]
	}
	flags := flag.NewFlagSet("lab "+command, flag.ExitOnError)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed = true
	switch command {
	case "commit":
		_ = flags.Parse(args)
		passed = run.Lanes(ctx, run.Commit()...)
	case "all":
		_ = flags.Parse(args)
		passed = run.Lanes(ctx, run.Modules())
	case "nightly":
		only := flags.String("only", "", "names of steps, separated by commas; empty: all of them")
		again := flags.Bool("again", false, "also run steps that passed on this commit before")
		_ = flags.Parse(args)
		var names []string
		if *only != "" {
			names = strings.Split(*only, ",")
		}
		passed = run.Night(ctx, run.Nightly(), names, *again, 6*time.Hour)
	case "planted":
		only := flags.String("only", "", "regular expression that matches the whole name of each; empty: all")
		in := flags.String("in", "", "folder in which each changes a file, as backends/postgres")
		from := flags.String("from", "", "the first, in the order of names")
		_ = flags.Parse(args)
		bugs := planted.Choose(planted.All(root), *only, *in, *from)
		missed := (&planted.Hunter{Root: root, Within: 6 * time.Minute, Out: os.Stdout}).Hunt(ctx, bugs)
		fmt.Printf("%d of %d planted bugs were found; missed: %v\n", len(bugs)-len(missed), len(bugs), missed)
		passed = len(missed) == 0
	case "run":
		r := &scene.Run{Out: os.Stdout}
		flags.BoolVar(&r.Short, "short", false, "the size of the commit tier")
		flags.Uint64Var(&r.Seed, "seed", 0, "of everything that is drawn; 0: another each time")
		flags.DurationVar(&r.For, "for", 0, "how long load lasts; 0: as long as the scenario says")
		flags.StringVar(&r.Store, "store", "", "etcd, postgres, sqlite, redis or kubernetes; empty: the scenario's own")
		var names []string
		for ; len(args) > 0 && !strings.HasPrefix(args[0], "-"); args = args[1:] {
			names = append(names, args[0])
		}
		_ = flags.Parse(args)
		passed = scene.Must(scene.Play(ctx, scenarios, append(names, flags.Args()...), r))
	case "simulate":
		o := simulate.Flags(flags, root)
		_ = flags.Parse(args)
		scene.Check(o.Play(ctx))
	case "etcd":
		listen := flags.String("listen", "127.0.0.1:2379", "host:port for clients; port 0 is any that is free")
		_ = flags.Parse(args)
		leases.ServeEtcd(ctx, *listen)
	case "list":
		run.List()
		for _, s := range scenarios {
			fmt.Printf("scenario %-26s %s\n", s.Name, s.About)
		}
	default:
		scene.Check(fmt.Errorf("%q is no command: commit, all, nightly, run, simulate, etcd, planted or list", command))
	}
	return passed
}

// scenarios are those of this system.
var scenarios []scene.Scenario
