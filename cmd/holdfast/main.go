// Command holdfast shows and steers leases, singletons and shards, on every store.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write fails with EPIPE then; a child is not told
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command and returns its exit code. Data goes to out, talk to log.
func run(ctx context.Context, args []string, in io.Reader, out, log io.Writer) int {
	a := &app{in: in, printer: printer{out: out, log: log}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(log)
	err := root.ExecuteContext(ctx)
	var c *coded
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // head has read enough
		return codeOK
	case !errors.As(err, &c):
		c = &coded{codeError, err}
	}
	if c.err != nil {
		fmt.Fprintf(log, "holdfast: %s\n", safe(c.err.Error()))
	}
	return c.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "See and steer leases, singletons and shards",
		Long: `holdfast shows who holds what, since when and why, and asks nodes to move work.

It reads the records of a store:                --store etcd://host:2379
or the page of any one node, which knows more:  --node http://host/admin/holdfast/`,
		Example: `  export HOLDFAST_STORE=sqlite:leases.db
  holdfast ls
  holdfast doctor report-mailer --node http://shop-1:8080/admin/holdfast/`,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.settle() },
		Args:              cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			hint := "holdfast --help lists all"
			if like := c.SuggestionsFor(args[0]); len(like) > 0 {
				hint = "did you mean " + strings.Join(like, " or ") + "?"
			}
			return usage("there is no command %q: %s", args[0], hint)
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.store, "store", "", "the store, by its URL; default: HOLDFAST_STORE")
	f.StringVar(&a.node, "node", "", "a node's page, by its URL; default: HOLDFAST_NODE")
	f.StringVarP(&a.output, "output", "o", "table", strings.Join(formats, ", "))
	f.BoolVar(&a.readOnly, "read-only", false, "refuse what would change anything")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	add := func(title string, all ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title})
		for _, c := range all {
			c.GroupID = title
		}
		root.AddCommand(all...)
	}
	add("See:", append(a.lists(), a.uiCommand())...)
	add("Steer:", append(a.steering(), a.runCommand())...)
	add("The store:", a.checkCommand(), a.tuneCommand(), a.benchCommand(), a.migrateCommand())
	root.AddCommand(a.command("version", "Print the version", "holdfast version", "", func(context.Context, []string) error {
		version := "(devel)"
		if b, ok := debug.ReadBuildInfo(); ok {
			version = cmp.Or(b.Main.Version, version)
		}
		_, err := fmt.Fprintln(a.out, "holdfast", version, runtime.Version())
		return err
	}))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w: %s --help lists the flags", err, c.CommandPath())
	})
	return root
}

// settle completes the flags from the environment, in which the node comes before the store.
func (a *app) settle() error {
	if a.store != "" && a.node != "" {
		return usage("--store and --node are both given: give one of them")
	}
	if !slices.Contains(formats, a.output) {
		return usage("there is no output %q, of %s", a.output, strings.Join(formats, ", "))
	}
	if a.node == "" && a.store == "" {
		a.node, a.store = os.Getenv("HOLDFAST_NODE"), os.Getenv("HOLDFAST_STORE")
	}
	return nil
}

// The exit codes.
const (
	codeOK      = 0
	codeError   = 1
	codeUsage   = 2
	codeHeld    = 3 // held by another
	codeLost    = 4 // the lease was lost while the program ran
	codeUnknown = 5 // the request may or may not have been carried out
)

// coded is an error with an exit code of its own.
type coded struct {
	code int
	err  error // nil: it was said already, or a program's status is passed on
}

func (c *coded) Error() string { return fmt.Sprint(c.err) }
func (c *coded) Unwrap() error { return c.err }

// usage is an error in how the command was called.
func usage(format string, args ...any) error {
	return &coded{codeUsage, fmt.Errorf(format, args...)}
}

// app is one run of the command.
type app struct {
	printer
	in       io.Reader
	store    string // --store
	node     string // --node
	readOnly bool
	yes      bool
}
