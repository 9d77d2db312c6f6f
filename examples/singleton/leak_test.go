package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	time.Sleep(1500 * time.Millisecond) // protoactor's count of dead letters ends a second after the first
	// A graceful end of protoactor's remote can fail half-way, when a peer hangs
	// up at that moment, and leave the listener behind.
	err := goleak.Find(goleak.IgnoreAnyFunction("google.golang.org/grpc.(*Server).Serve"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
