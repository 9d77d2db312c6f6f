// Package mutant names the bugs that package route can have, and has in no build.
//
// Package test/mutants plants bugs by overlay instead. This package ends with the last
// call to On.
package mutant

// The bugs, by name, and what they do.
const (
	MarkerIgnored   = "marker-ignored"   // mail takes the new way at once
	RelayForgotten  = "relay-forgotten"  // relays are not kept until they are taken up
	UnboundedBuffer = "unbounded-buffer" // the buffer of a name has no bound
)

// On is false: nothing is planted in any build.
func On(string) bool { return false }
