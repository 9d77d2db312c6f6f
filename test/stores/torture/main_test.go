//go:build linux

package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/test/torture/torture"
)

func TestMain(m *testing.M) {
	if torture.Spawned() || os.Getenv(programEnv) != "" { // what a test started
		torture.Main(overPostgres, overSQLite, earlySQLite)
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
