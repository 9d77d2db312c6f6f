//go:build linux

package machine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// childEnv makes the test binary a child that answers each line with itself.
const childEnv = "HOLDFAST_CLUSTER_CHILD"

func TestMain(m *testing.M) {
	Burn()
	if os.Getenv(childEnv) != "" {
		out := json.NewEncoder(os.Stdout)
		_ = out.Encode(report{What: "up", Heap: Heap()})
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			_ = out.Encode(report{What: lines.Text()})
		}
		os.Exit(3)
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type report struct {
	What string
	Heap uint64
}

type note struct {
	seq    uint64
	twice  uint64
	sender uint16
}

// pairOf is one journal as its writer and its reader have it.
func pairOf(t *testing.T, n int) (w, r *Journal[note]) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	r, w = MakeJournal[note](path, n), OpenJournal[note](path)
	t.Cleanup(func() { require.NoError(t, w.Close()); require.NoError(t, r.Close()) })
	return w, r
}

func TestNotesAreReadByOthers(t *testing.T) {
	w, r := pairOf(t, 3)
	require.Empty(t, r.Read())
	a, b := note{1 << 60, 1 << 50, 100}, note{sender: 4999}
	w.Note(a)
	w.Note(b)
	require.Equal(t, []note{a, b}, r.Read())
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
	require.Equal(t, []note{{seq: 6}}, r.Read())
	_, ok := r.At(0)
	require.False(t, ok)
}

func TestAJournalThatRanFullIsNoEvidence(t *testing.T) {
	w, r := pairOf(t, 2)
	for range 2 {
		w.Note(note{})
	}
	require.Len(t, r.Read(), 2)
	w.Note(note{})
	err := scene.Try(func() { r.Read() })
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
	es := r.Read()
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
	require.NoError(t, MakeJournal[note](path, 1).Close())
	require.ErrorIs(t, scene.Try(func() { MakeJournal[note](path, 1) }), os.ErrExist)
	require.ErrorIs(t, scene.Try(func() { OpenJournal[note](path + "x") }), os.ErrNotExist)
	require.ErrorContains(t, scene.Try(func() { MakeJournal[note](path+"0", 0) }), "not of entries")
	// A file of something else; three words and one are as long as this note.
	require.NoError(t, OpenJournal[[3]uint64](path).Close())
	err := scene.Try(func() { OpenJournal[[7]uint64](path) })
	require.ErrorContains(t, err, "not of entries of 64")
}

func started(t *testing.T) *Process[report] {
	p := Start[report](nil, "", "child", childEnv, 1)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	_, err := p.Await(t.Context(), 10*time.Second, "up", func(r report) bool { return r.What == "up" && r.Heap > 0 })
	require.NoError(t, err)
	return p
}

func TestAProcessTakesOrdersAndReports(t *testing.T) {
	p := started(t)
	require.NoError(t, p.Tell("hello"))
	_, err := p.Await(t.Context(), 10*time.Second, "its answer", func(r report) bool { return r.What == `"hello"` })
	require.NoError(t, err)
	require.Len(t, p.Said(), 2)
	_, err = p.Await(t.Context(), 10*time.Millisecond, "more", func(r report) bool { return r.What == "more" })
	require.ErrorIs(t, err, ErrNever)
	require.Greater(t, RSS(p.Pid()), uint64(1<<20))
}

func TestTheEndOfAProcessEndsItsWaiters(t *testing.T) {
	p := started(t)
	require.NoError(t, p.Signal(syscall.SIGSTOP)) // one that is stopped can be killed as well
	go func() { _ = p.Kill() }()
	_, err := p.Await(t.Context(), 10*time.Second, "more", func(r report) bool { return r.What == "more" })
	require.ErrorContains(t, err, "child ended by itself: signal: killed")
	require.Zero(t, RSS(p.Pid()))
}

func TestBurnersUseTheProcessorUntilTheyAreEnded(t *testing.T) {
	end := Burners(1)
	require.NoError(t, end())
}
