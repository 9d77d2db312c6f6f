//go:build linux

package stage

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

// Program is a demonstration, and what is its own on the command line.
type Program struct {
	Name          string
	Duration      time.Duration // by default
	DurationUsage string
	VerboseUsage  string

	Run   func(Config, io.Writer) (Verdict, error)                                       // all in this process
	Local func(context.Context, Config, io.Writer) (Verdict, error)                      // with an etcd and processes
	Node  func(ctx context.Context, cfg Config, in io.Reader, out, logs io.Writer) error // one node
}

// Main runs the program, and returns the exit status.
func (p Program) Main(ctx context.Context, args []string, in io.Reader, out, logs io.Writer) int {
	cfg := Config{name: p.Name}
	fs := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	fs.SetOutput(logs)
	fs.DurationVar(&cfg.TTL, "ttl", 2*time.Second, "how long a lease outlives its last renewal")
	fs.DurationVar(&cfg.Duration, "duration", p.Duration, p.DurationUsage)
	fs.BoolVar(&cfg.Verbose, "v", false, p.VerboseUsage)
	where := fs.String("etcd", "local", "`local`: an etcd and processes of its own; none: all in this process; or the endpoints of an etcd to run one node on")
	fs.StringVar(&cfg.ID, "id", fmt.Sprintf("node-%d", os.Getpid()), "the node's name, with -etcd URL")
	fs.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "where the node listens, with -etcd URL")
	fs.BoolVar(&cfg.Journal, "journal", false, "print lines of JSON, and end when standard input does, with -etcd URL")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0:
		fmt.Fprintf(logs, "%v: %q, there are no arguments but flags\n", lease.ErrInvalid, fs.Arg(0))
		return 2
	}

	if *where != "none" { // otherwise there is nothing to leave behind
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	var v Verdict
	var err error
	switch *where {
	case "none":
		v, err = p.Run(cfg, out)
	case "local":
		v, err = p.Local(ctx, cfg, out)
	default:
		cfg.Endpoints = strings.Split(*where, ",")
		if err = p.Node(ctx, cfg, in, out, logs); err == nil {
			return 0
		}
	}
	switch {
	case errors.Is(err, lease.ErrInvalid):
		fmt.Fprintln(logs, err)
		return 2
	case err != nil && len(cfg.Endpoints) > 0:
		fmt.Fprintln(logs, err)
		return 1
	case err != nil:
		fmt.Fprintln(logs, "no verdict:", err)
		return 1
	case !v.Good():
		return 1
	}
	return 0
}
