//go:build race

package lease_test

// The race detector makes everything several times slower.
const underRace = true
