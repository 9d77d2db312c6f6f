package node_test

import (
	"os"
	"os/signal"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The first Notify of a process begins what serves all later ones. In a bubble of synctest
	// it would be the bubble's, which ends the process.
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
	// protoactor counts dead letters of a second, on a goroutine that ends after it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}
