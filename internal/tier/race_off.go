//go:build !race

package tier

// Racing reports whether this build has the race detector, which makes a test about ten times slower.
const Racing = false
