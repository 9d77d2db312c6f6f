//go:build linux

package leases

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// childEnv makes this program a process of a scenario: a childArg as JSON.
const childEnv = "HOLDFAST_LAB_LEASES"

type childArg[A any] struct {
	Kind string
	Arg  A
}

// children are what such a process may be.
var children = map[string]func(arg json.RawMessage){
	"holder": holder, "writer": writer, "function": function,
}

// Child is the whole of a process that a scenario started; in any other it does nothing. A program
// that plays scenarios calls it first.
func Child() {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return
	}
	var c childArg[json.RawMessage]
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = scene.Try(func() { children[c.Kind](c.Arg) })
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "leases, a %s: %v\n", c.Kind, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// start starts a process that reports R.
func start[R any](at *lab.Place, kind, id string, arg any) (*lab.Process[R], error) {
	return lab.Start[R](at, id, childEnv, childArg[any]{kind, arg})
}

// untilTold returns a context that ends with the first line, or the end, of the input.
func untilTold() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	return ctx, cancel
}
