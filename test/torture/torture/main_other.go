//go:build !linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

var errLinux = errors.New("torture: needs Linux")

// Spawned is false: there are no nodes here.
func Spawned() bool { return false }

// Main ends the process with 2.
func Main(...Store) {
	fmt.Fprintln(os.Stderr, errLinux)
	os.Exit(2)
}

// Short says that it needs Linux.
func Short(context.Context, Store, io.Writer) ([]Violation, error) { return nil, errLinux }

// Planted says that it needs Linux.
func Planted(context.Context, Store, io.Writer) (Found, error) { return Found{}, errLinux }
