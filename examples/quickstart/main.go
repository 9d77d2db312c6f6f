// Command quickstart is a program as it is deployed: start it several times, and one of
// the processes runs the scheduler. docs/getting-started.md runs it.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

type (
	AddJob   struct{ Name string }
	Accepted struct {
		By    string
		Token lease.Token
	}
)

func main() {
	ctx := context.Background()
	store, closeStore, err := open.Open(ctx, os.Getenv("STORE")) // etcd://etcd:2379
	check(err)
	defer closeStore()
	n, err := node.Start(ctx, node.Config{
		ID: os.Getenv("NODE"), Store: store, // $POD_NAME
		Listen: os.Getenv("LISTEN"), Plaintext: true, // $POD_IP:8080; in production TLS
		Messages: node.Types(AddJob{}, Accepted{}),
		HTTP:     os.Getenv("HTTP"), // :9090 has /livez, /readyz, /info; empty: nothing
	})
	check(err)
	scheduler, err := n.Singleton("scheduler", actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(AddJob); ok {
			held, _ := singleton.Of(c) // give its token to whatever you write to
			c.Respond(Accepted{n.Keeper().Owner().ID, held.Token()})
		}
	}))
	check(err)
	go func() {
		for range time.Tick(time.Second) { // from every node, wherever the scheduler runs
			ask, cancel := context.WithTimeout(ctx, 5*time.Second)
			log.Println(singleton.Ask[Accepted](ask, scheduler, AddJob{"backup"}))
			cancel()
		}
	}()
	// Without actors: l, err := n.Keeper().Lease("backup"); lease.Run(ctx, l, backup)
	check(n.Run(ctx)) // until a signal; then it hands over, releases, and ends
}

func check(err error) {
	if errors.Is(err, node.ErrStopped) {
		os.Exit(0) // a signal came while it started
	}
	if err != nil {
		log.Fatal(err)
	}
}
