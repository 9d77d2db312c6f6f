//go:build linux

package machine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a child that answers each line with itself.
const childEnv = "HOLDFAST_CLUSTER_CHILD"

func TestMain(m *testing.M) {
	Burn()
	if os.Getenv(childEnv) != "" {
		out := json.NewEncoder(os.Stdout)
		_ = out.Encode(report{What: "up", Heap: Heap()})
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			_ = out.Encode(report{What: lines.Text()})
		}
		os.Exit(3)
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type report struct {
	What string
	Heap uint64
}
