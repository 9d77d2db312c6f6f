package main

import (
	"fmt"
	"io"
)

// The exit codes.
const (
	codeOK      = 0
	codeError   = 1
	codeUsage   = 2
	codeHeld    = 3 // held by another
	codeLost    = 4 // the lease was lost while the program ran
	codeUnknown = 5 // the request may or may not have been carried out
)

// coded is an error with an exit code of its own.
type coded struct {
	code int
	err  error // nil: it was said already, or a program's status is passed on
}

func (c *coded) Error() string { return fmt.Sprint(c.err) }
func (c *coded) Unwrap() error { return c.err }

// usage is an error in how the command was called.
func usage(format string, args ...any) error {
	return &coded{codeUsage, fmt.Errorf(format, args...)}
}

// app is one run of the command.
type app struct {
	in       io.Reader
	out, log io.Writer
	store    string // --store
	node     string // --node
	output   string // --output
	readOnly bool
	yes      bool
}
