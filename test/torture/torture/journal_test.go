//go:build linux

package torture

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJournalIsSharedAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	reads, err := newJournal(path, 100)
	require.NoError(t, err)
	defer reads.close()
	writes, err := openJournal(path)
	require.NoError(t, err)
	defer writes.close()
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			for k := range 10 {
				writes.note(entry{at: time.Duration(1 + 10*i + k), kind: passed, token: 7})
			}
		})
	}
	all.Wait()
	es, err := reads.read()
	require.NoError(t, err)
	require.Len(t, es, 100)
	writes.note(entry{at: 1, kind: passed})
	_, err = reads.read()
	require.ErrorContains(t, err, "judge nothing")
	_, err = openJournal(filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}
