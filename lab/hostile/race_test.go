//go:build race

package hostile_test

// The race detector makes everything several times slower.
const slower = 10
