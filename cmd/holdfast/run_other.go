//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// runCommand is holdfast run, which ends all that a program started: Linux alone says what that is.
func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run a program while holding a lease (Linux only)",
		RunE: func(*cobra.Command, []string) error { return errors.New("run: needs Linux") },
	}
}
