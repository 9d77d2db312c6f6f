//go:build !holdfast_mutants

package mutant

// Planted says whether this build can have any.
const Planted = false

// On is false: nothing is planted in this build.
func On(string) bool { return false }
