//go:build linux

package soak

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

func TestMain(m *testing.M) {
	if lab.IsBurner() {
		lab.Burn()
	}
	if code, is := Child(); is { // what a test started
		os.Exit(code)
	}
	// These tests wait, mostly.
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
