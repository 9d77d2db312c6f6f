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
	if cluster.IsBurner() {
		cluster.Burn()
	}
	Stores = append(Stores, shared, earlySQLite)
	if code, is := Child(); is { // what a test started
		os.Exit(code)
	}
	if os.Getenv(programEnv) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	// A race in a node ends it: a violation.
	if err := os.Setenv("GORACE", "halt_on_error=1 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
