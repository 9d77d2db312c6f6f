package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/health"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// A program without a Node: probes ask whether it is well, and it stops in good order.
func Example_withoutANode() {
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	if err != nil {
		log.Fatal(err)
	}
	system := actor.NewActorSystem()
	scheduler := actor.PropsFromFunc(func(actor.Context) {})
	if _, err := singleton.Start(system, keeper, "scheduler", scheduler); err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/livez", health.Handler(time.Second)) // no checks: the process answers
	mux.Handle("/readyz", health.Handler(5*time.Second, keeper.Health, singleton.Health(system)))
	probes := httptest.NewServer(mux) // a program: http.Server, on a port of its own

	ctx, done := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	time.AfterFunc(100*time.Millisecond, done) // no signal comes here
	<-ctx.Done()
	done() // a second signal ends the process
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = singleton.StopAll(ctx, system) // first what works under leases
	err = errors.Join(err, keeper.Close(ctx))
	probes.Close()
	fmt.Println("stopped:", err)
	// Output:
	// stopped: <nil>
}
