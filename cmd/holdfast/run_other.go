//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// runCommand is holdfast run, which needs process groups.
func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run a program while holding a lease (Unix only)",
		RunE: func(*cobra.Command, []string) error { return errors.New("run: needs a Unix") },
	}
}
