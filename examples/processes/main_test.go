//go:build linux

package main

import (
	"os/exec"
	"testing"
)

// The verdict of the program is good.
func TestTheProgram(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "go", "run", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
