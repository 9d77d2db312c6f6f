//go:build unix

// Lab runs the checks that take more than one `go test`.
//
//	go run -C lab . commit         the tests of .ci/run: every module once, and -race where it finds something
//	go run -C lab . all            the tests of every module but the root
//	go run -C lab . nightly        the long checks of .ci/nightly; goes on where it stopped
//	go run -C lab . nightly -only torture,soak-load -again
//	go run -C lab . list           the steps of each
//	go run -C lab . planted        known bugs, one at a time: which check finds each
//	go run -C lab . planted -only 'pg-guard.*' -in backends/postgres -from NAME
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/checks"
	"github.com/holdfast-go/holdfast/lab/planted"
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
	passed := false
	switch command {
	case "commit":
		_ = flags.Parse(args)
		lanes, err := run.Commit()
		fail(err)
		passed = run.Lanes(lanes...)
	case "all":
		_ = flags.Parse(args)
		steps, err := run.Modules()
		fail(err)
		passed = run.Lanes(steps)
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
		passed, err = run.Night(steps, names, *again, *within)
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
		missed := (&planted.Hunter{Root: root, Within: *within, Out: os.Stdout}).Hunt(bugs)
		fmt.Printf("%d of %d planted bugs were found; missed: %v\n", len(bugs)-len(missed), len(bugs), missed)
		passed = len(missed) == 0
	case "list":
		fail(run.List())
		passed = true
	default:
		fail(fmt.Errorf("%q is no command: commit, all, nightly, planted or list", command))
	}
	if !passed {
		run.Close()
		os.Exit(1)
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(2)
	}
}
