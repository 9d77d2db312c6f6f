//go:build !linux

package torture

import (
	"fmt"
	"os"
)

// Main is a program that tortures, and each of the nodes that it starts.
func Main() {
	fmt.Fprintln(os.Stderr, "torture: needs Linux")
	os.Exit(2)
}
