//go:build unix

package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// holdEnv makes the test binary run a server, print where it is and wait to be killed: what a test
// process does that never comes to its cleanups.
const holdEnv = "REDISTEST_HOLD"

// soon bounds, generously, how long things take on a machine that is busy.
const soon = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		s, err := Run(context.Background(), Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.proc.Pid(), s.g.Temp)
		select {}
	}
	goleak.VerifyTestMain(m)
}
