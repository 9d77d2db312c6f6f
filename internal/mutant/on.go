//go:build holdfast_mutants

package mutant

import "os"

// Planted says whether this build can have any.
const Planted = true

var planted = os.Getenv("HOLDFAST_MUTANT")

// On reports whether the environment variable HOLDFAST_MUTANT names the bug.
func On(name string) bool { return planted == name }
