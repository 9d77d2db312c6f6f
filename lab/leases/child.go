//go:build linux

package leases

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// childEnv makes this program a process of serverless: its settings as JSON.
const childEnv = "HOLDFAST_LAB_LEASES"

// Child is the whole of a process that a scenario started; in any other it does nothing. A program
// that plays scenarios calls it first.
func Child() {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return
	}
	if err := scene.Try(func() { function(text) }); err != nil {
		fmt.Fprintln(os.Stderr, "lab function:", err)
		os.Exit(2)
	}
	os.Exit(0)
}
