package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// steering are the commands that ask a node to do something.
func (a *app) steering() []*cobra.Command {
	var to string
	steer := func(use, short, example, of string, request func(name string) console.Request) *cobra.Command {
		c := a.command(use, short, example, of, func(ctx context.Context, args []string) error {
			return a.act(ctx, request(args[0]))
		})
		c.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask")
		return c
	}
	release := steer("release NAME", "Ask the holder of a lease to end its work and release it",
		"holdfast release cron/nightly-report", "leases",
		func(name string) console.Request { return console.Request{Action: "release", Name: name} })
	release.Long = release.Short + `.
That is a planned end, asked for through a node. A lease is never taken from work that runs, and there
is no force. With --store alone it acts only on a record whose session has ended.`
	asked := release.RunE
	release.RunE = func(c *cobra.Command, args []string) error {
		if a.node == "" && a.store != "" && !a.readOnly {
			return a.over(c.Context(), func(o *opened) error { return a.releaseEnded(c.Context(), o, args[0]) })
		}
		return asked(c, args)
	}
	transfer := steer("transfer NAME", "Ask a singleton's host to hand it over",
		"holdfast transfer report-mailer --to shop-2", "singletons",
		func(name string) console.Request { return console.Request{Action: "move", Name: name, To: to} })
	transfer.Flags().StringVar(&to, "to", "", "the node that is to host it, by its id; default: any that may")
	_ = transfer.RegisterFlagCompletionFunc("to", a.completion("nodes"))
	drain := steer("drain NODE", "Ask a node to give its work to the others", "holdfast drain shop-2 --yes", "nodes",
		func(id string) console.Request { return console.Request{Action: "drain", Node: id} })
	undrain := steer("undrain NODE", "Let a node that was drained take work again", "holdfast undrain shop-2 --yes", "nodes",
		func(id string) console.Request { return console.Request{Action: "undrain", Node: id} })
	return []*cobra.Command{release, transfer, drain, undrain}
}

// act asks before a request, and sends it.
func (a *app) act(ctx context.Context, r console.Request) error {
	verb := strings.Replace(r.Action, "move", "transfer", 1)
	if a.readOnly {
		return usage("%s would change something: leave --read-only out", verb)
	}
	if a.node == "" {
		return usage("%s asks a node: give --node or HOLDFAST_NODE, such as %s", verb, nodeExample)
	}
	p, err := a.page()
	if err != nil {
		return err
	}
	question := verb + " " + r.Node
	if r.Name != "" {
		s, err := a.snapshot(ctx, reach)
		if err != nil {
			return err
		}
		holder := ""
		if x, lease := lookUp(&s, r.Name); r.Action == "move" && x.Singleton != nil {
			r.Name, r.Token, holder = x.Singleton.Name, x.Singleton.Token, id(x.Singleton.Host)
		} else if r.Action == "release" && x.Lease != nil {
			r.Name, r.Token, holder = lease, x.Lease.Token, id(x.Lease.Owner)
		} else {
			return unknown(r.Name)
		}
		question = fmt.Sprintf("%s %s, which %s holds", verb, r.Name, cmp.Or(holder, "no node"))
		if r.To != "" {
			question += ", to " + r.To
		}
	}
	if err := a.ask(question); err != nil {
		return err
	}
	done, err := p.act(ctx, r)
	switch {
	case err != nil:
		return err
	case a.output == "table" || a.output == "wide":
		_, err = fmt.Fprintln(a.out, safe(done.Text))
		return err
	}
	return a.object(done)
}

// ask asks at the terminal.
func (a *app) ask(question string) error {
	switch {
	case a.yes:
		return nil
	case !isTerminal(a.in):
		return usage("%s: say --yes, as there is no terminal to ask at", question)
	}
	fmt.Fprintf(a.log, "%s: go on? [y/N] ", safe(question))
	signal.Reset(os.Interrupt, syscall.SIGTERM) // they end the process here, as reading can't be cut short
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// releaseEnded would release a record whose session has ended. As each store removes those by itself,
// it says who holds what stands.
func (a *app) releaseEnded(ctx context.Context, o *opened, name string) error {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	r, err := o.keeper.Get(ctx, name)
	switch {
	case errors.Is(err, store.ErrBadRecord):
		return &coded{codeHeld, o.say(err)}
	case errors.Is(err, lease.ErrNotHeld):
		_, err = fmt.Fprintf(a.out, "%s is free: the store removes a record by itself when its session ends\n", safe(name))
		return err
	case err != nil:
		return o.say(err)
	}
	return &coded{codeHeld, fmt.Errorf("%s is held by %s, whose session lives: ask it through a node (--node), "+
		"or end its process, and the record ends within %s", name, r.Owner.ID, span(cmp.Or(r.Left, r.TTL)))}
}
