//go:build linux

package soak

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

func TestTheFirstMessageHandledSince(t *testing.T) {
	j, err := lab.MakeJournal[entry](filepath.Join(t.TempDir(), "journal"), 8)
	require.NoError(t, err)
	defer j.Close()
	j.Note(entry{at: 5, kind: handled})
	j.Note(entry{at: 8, kind: passed})
	from, ok := handledSince(j, 0, 8)
	require.False(t, ok)
	require.Equal(t, 2, from)
	j.Note(entry{at: 7, kind: handled})
	j.Note(entry{at: 8, kind: handled})
	_, ok = handledSince(j, from, 8)
	require.True(t, ok)
	_, ok = handledSince(j, from, 9)
	require.False(t, ok)
}
