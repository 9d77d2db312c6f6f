// Command holdfast shows and steers leases, singletons and shards, on every store.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The exit codes.
const (
	codeOK      = 0
	codeError   = 1
	codeUsage   = 2
	codeHeld    = 3 // held by another
	codeLost    = 4 // the lease was lost while the program ran
	codeUnknown = 5 // it is not known what came of it
)

// coded is an error with an exit code of its own.
type coded struct {
	code int
	err  error // nil: it was said already, or a program's status is passed on
}

func (c *coded) Error() string { return fmt.Sprint(c.err) }
func (c *coded) Unwrap() error { return c.err }

// run runs the command and returns its exit code. Data goes to out, talk to log.
func run(ctx context.Context, args []string, in io.Reader, out, log io.Writer) int {
	a := &app{in: in, out: out, log: log}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(log)
	err := root.ExecuteContext(ctx)
	var c *coded
	switch {
	case err == nil:
		return codeOK
	case !errors.As(err, &c):
		c = &coded{codeError, err}
	}
	if c.err != nil {
		fmt.Fprintf(log, "holdfast: %v\n", c.err)
	}
	return c.code
}

// app is one run of the command.
type app struct {
	in       io.Reader
	out, log io.Writer
	store    string // --store
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{Use: "holdfast", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&a.store, "store", os.Getenv("HOLDFAST_STORE"), "the store, by its URL")
	root.AddCommand(a.runCommand())
	return root
}
