//go:build !race

package explore

// Racing says whether this build has the race detector, which makes explorations
// ten times slower. It has nothing to look for in them: they have one goroutine.
const Racing = false
