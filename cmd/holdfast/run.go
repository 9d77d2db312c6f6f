package main

import "github.com/spf13/cobra"

// runCommand is holdfast run.
func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{Use: "run --lease NAME [flags] -- CMD [ARG…]"}
}
