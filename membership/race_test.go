//go:build race

package membership_test

const underRace = true
