//go:build linux

package torture

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/test/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" || cluster.IsBurner() { // what a test started
		Main()
		os.Exit(0)
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
