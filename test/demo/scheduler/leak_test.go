package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
)

func TestMain(m *testing.M) {
	if os.Getenv(stage.NodeEnv) != "" { // a node that a test started
		main()
	}
	code := m.Run()
	time.Sleep(1500 * time.Millisecond) // protoactor's count of dead letters ends a second after the first
	err := goleak.Find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
