//go:build linux

package main

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Most of these tests wait most of the time.
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "5"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
