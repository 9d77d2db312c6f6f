package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/mutant"
)

// Every mutant is hunted, and none is in a build without the tag.
func TestEveryMutantIsHunted(t *testing.T) {
	for _, name := range mutant.All {
		require.NotEmpty(t, hunters[name], name)
		if !mutant.Planted {
			require.False(t, mutant.On(name))
		}
	}
	require.Len(t, hunters, len(mutant.All))
}
