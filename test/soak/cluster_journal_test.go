//go:build linux

package main

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pairOf is one journal as its writer and its reader have it.
func pairOf(t *testing.T, n int) (w, r *journal) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	r, err := newJournal(path, n)
	require.NoError(t, err)
	w, err = openJournal(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()); require.NoError(t, r.close()) })
	return w, r
}

func TestWhatIsNotedIsReadByOthers(t *testing.T) {
	w, r := pairOf(t, 3)
	es, err := r.read()
	require.NoError(t, err)
	require.Empty(t, es)
	a := entry{at: 5, token: 1 << 60, sent: 4, seq: 1 << 50, sender: 100, name: 4999, kind: handled}
	b := entry{at: 6, kind: passed, token: 2}
	w.note(a)
	w.note(b)
	es, err = r.read()
	require.NoError(t, err)
	require.Equal(t, []entry{a, b}, es)
	require.Equal(t, 2, r.len())
}

func TestAnEntryThatWasCutOffIsNone(t *testing.T) {
	w, r := pairOf(t, 3)
	w.note(entry{at: 5})
	w.note(entry{at: 6})
	w.entries[0].at = 0 // as if the process had died over it
	es, err := r.read()
	require.NoError(t, err)
	require.Equal(t, []entry{{at: 6}}, es)
}

func TestAJournalThatRanFullIsNoEvidence(t *testing.T) {
	w, r := pairOf(t, 2)
	for range 2 {
		w.note(entry{at: 1})
	}
	_, err := r.read()
	require.NoError(t, err)
	w.note(entry{at: 1})
	_, err = r.read()
	require.ErrorContains(t, err, "3 entries for a journal of 2")
}

func TestTheFirstMessageHandledSince(t *testing.T) {
	w, r := pairOf(t, 8)
	w.note(entry{at: 5, kind: handled})
	w.note(entry{at: 8, kind: passed})
	from, ok := r.handledSince(0, 8)
	require.False(t, ok)
	require.Equal(t, 2, from)
	w.note(entry{at: 8, kind: handled})
	w.entries[2].at = 0 // not yet
	from, ok = r.handledSince(from, 8)
	require.False(t, ok)
	require.Equal(t, 2, from)
	w.entries[2].at = 8
	_, ok = r.handledSince(from, 8)
	require.True(t, ok)
}

func TestManyNoteAtOnce(t *testing.T) {
	w, r := pairOf(t, 8000)
	var all sync.WaitGroup
	for s := range uint32(8) {
		all.Go(func() {
			for i := range uint64(1000) {
				w.note(entry{at: time.Duration(i + 1), sender: s, seq: i + 1})
			}
		})
	}
	all.Wait()
	es, err := r.read()
	require.NoError(t, err)
	require.Len(t, es, 8000)
	seen := map[uint32]uint64{}
	for _, e := range es {
		require.Equal(t, time.Duration(e.seq), e.at, "of one piece")
		require.Equal(t, seen[e.sender]+1, e.seq, "in order")
		seen[e.sender]++
	}
}

func TestAJournalIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := newJournal(path, 1)
	require.NoError(t, err)
	require.NoError(t, j.close())
	_, err = newJournal(path, 1)
	require.Error(t, err)
	_, err = openJournal(path + "x")
	require.Error(t, err)
	_, err = newJournal(path+"0", 0)
	require.ErrorContains(t, err, "no room")
}
