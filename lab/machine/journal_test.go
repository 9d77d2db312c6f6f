//go:build linux

package machine

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type note struct {
	seq    uint64
	twice  uint64
	sender uint16
}

// pairOf is one journal as its writer and its reader have it.
func pairOf(t *testing.T, n int) (w, r *Journal[note]) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	r, err := MakeJournal[note](path, n)
	require.NoError(t, err)
	w, err = OpenJournal[note](path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()); require.NoError(t, r.Close()) })
	return w, r
}

func TestNotesAreReadByOthers(t *testing.T) {
	w, r := pairOf(t, 3)
	es, err := r.Read()
	require.NoError(t, err)
	require.Empty(t, es)
	a, b := note{1 << 60, 1 << 50, 100}, note{sender: 4999}
	w.Note(a)
	w.Note(b)
	es, err = r.Read()
	require.NoError(t, err)
	require.Equal(t, []note{a, b}, es)
	require.Equal(t, 2, r.Len())
	e, ok := r.At(1)
	require.True(t, ok)
	require.Equal(t, b, e)
	_, ok = r.At(2)
	require.False(t, ok, "not begun")
	_, ok = r.At(3)
	require.False(t, ok, "no room")
}

func TestAnEntryThatWasCutOffIsNone(t *testing.T) {
	w, r := pairOf(t, 3)
	w.Note(note{seq: 5})
	w.Note(note{seq: 6})
	w.slots[0].whole = 0 // as if the process had died over it
	es, err := r.Read()
	require.NoError(t, err)
	require.Equal(t, []note{{seq: 6}}, es)
	_, ok := r.At(0)
	require.False(t, ok)
}

func TestAJournalThatRanFullIsNoEvidence(t *testing.T) {
	w, r := pairOf(t, 2)
	for range 2 {
		w.Note(note{})
	}
	_, err := r.Read()
	require.NoError(t, err)
	w.Note(note{})
	_, err = r.Read()
	require.ErrorContains(t, err, "3 entries for a journal of 2: judge nothing")
}

func TestManyNoteAtOnce(t *testing.T) {
	w, r := pairOf(t, 8000)
	var all sync.WaitGroup
	for s := range uint16(8) {
		all.Go(func() {
			for i := range uint64(1000) {
				w.Note(note{i + 1, 2 * (i + 1), s})
			}
		})
	}
	all.Wait()
	es, err := r.Read()
	require.NoError(t, err)
	require.Len(t, es, 8000)
	seen := map[uint16]uint64{}
	for _, e := range es {
		require.Equal(t, 2*e.seq, e.twice, "of one piece")
		require.Equal(t, seen[e.sender]+1, e.seq, "in order")
		seen[e.sender]++
	}
}

func TestAJournalIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := MakeJournal[note](path, 1)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	_, err = MakeJournal[note](path, 1)
	require.ErrorIs(t, err, os.ErrExist)
	_, err = OpenJournal[note](path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = MakeJournal[note](path+"0", 0)
	require.ErrorContains(t, err, "no room for an entry")
	_, err = OpenJournal[[3]uint64](path) // a file of something else
	require.NoError(t, err, "three words and one are as long as this note")
	_, err = OpenJournal[[7]uint64](path)
	require.ErrorContains(t, err, "not of entries of 64")
}
