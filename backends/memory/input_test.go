package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

func TestBadInput(t *testing.T) {
	inputtest.Contexts(t, memory.New())
	inputtest.Zeros(t, nil, new(memory.Store))
	_, err := new(memory.Store).Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "memory.New")
}
