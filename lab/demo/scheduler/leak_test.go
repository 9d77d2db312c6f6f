//go:build linux

package scheduler

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

func TestMain(m *testing.M) {
	if os.Getenv(stage.NodeEnv) != "" { // a node that a test started
		os.Exit(Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	code := m.Run()
	err := goleak.Find()
	for tries := 0; err != nil && tries < 10; tries++ { // protoactor's count of dead letters ends a second after the first
		time.Sleep(time.Second)
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
