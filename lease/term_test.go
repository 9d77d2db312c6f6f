package lease_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestFenceRefusesLowerTokens(t *testing.T) {
	f := lease.NewFence(5)
	require.Equal(t, lease.Token(5), f.Highest())
	ran := 0
	write := func() error { ran++; return nil }
	require.ErrorIs(t, f.Do(4, write), lease.ErrStale, "what was kept with the data counts")
	require.ErrorIs(t, f.Do(0, write), lease.ErrStale, "no token: nothing to fence by")
	require.ErrorIs(t, lease.NewFence(0).Do(0, write), lease.ErrStale)
	require.Zero(t, ran, "a refused write does not run")
	require.NoError(t, f.Do(5, write), "the holder writes again and again")
	require.NoError(t, f.Advance(7))
	require.ErrorIs(t, f.Do(6, write), lease.ErrStale)
	require.ErrorContains(t, f.Do(6, write), "token 6 after 7")
	require.Equal(t, 1, ran)
	failure := errors.New("disk full")
	require.ErrorIs(t, f.Do(9, func() error { return failure }), failure)
	require.Equal(t, lease.Token(9), f.Highest(), "a write that failed was seen all the same")
	require.Panics(t, func() { f.Do(9, func() error { panic("oops") }) })
	require.NoError(t, f.Do(9, write), "a panic leaves the fence usable")
}

// Whatever the order in which holders come, writes happen in the order of their
// tokens, one at a time.
func TestFenceUnderConcurrency(t *testing.T) {
	f := lease.NewFence(0)
	var wg sync.WaitGroup
	var written []lease.Token // guarded by the fence itself: the race detector judges
	for i := range 50 {
		wg.Go(func() {
			for range 20 {
				token := lease.Token(1 + i + rand.IntN(50))
				err := f.Do(token, func() error { written = append(written, token); return nil })
				if err != nil && !errors.Is(err, lease.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.IsNonDecreasing(t, written)
	require.Equal(t, written[len(written)-1], f.Highest())
}

func info(t *testing.T, l lease.Lease) lease.TermInfo {
	t.Helper()
	termed, ok := lease.As[lease.Termed](l)
	require.True(t, ok)
	term, ok := termed.Term()
	require.True(t, ok)
	return term.(lease.Informed).Info()
}

func TestATermTellsOfItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		n := start(t, s, "a")
		n.hold("other") // the session is older than the term
		time.Sleep(2 * ttl)
		h := n.lease("job", lease.WithMetadata(map[string]string{"k": "v"}))
		won := time.Now()
		mustWin(t, h)
		i := info(t, h)
		require.True(t, i.Granted.Equal(won), "%v", i.Granted)
		require.Zero(t, i.Renewals)
		require.Equal(t, "memory", i.Store)
		require.True(t, i.TrustedUntil.After(won))
		require.False(t, i.TrustedUntil.After(won.Add(ttl)))
		rec, _ := standing(t, s, "job")
		require.Equal(t, "v", rec.Metadata["k"])
		require.True(t, rec.Granted.Equal(won))

		time.Sleep(ttl)
		later := info(t, h)
		require.InDelta(t, 3, later.Renewals, 1)
		require.True(t, later.Granted.Equal(won))
		require.True(t, later.TrustedUntil.After(i.TrustedUntil))
		require.Equal(t, later, info(t, wrapped{h}))

		term, _ := h.Term()
		require.NoError(t, h.Release(t.Context()))
		over := term.(lease.Informed).Info()
		require.True(t, over.TrustedUntil.IsZero())
		require.True(t, over.Granted.Equal(won))
		mustWin(t, h)
		require.True(t, info(t, h).Granted.After(won))
		require.Zero(t, info(t, h).Renewals)
	})
}

// untold hides when a store's records were granted.
type untold struct{ watchless }

func (s untold) Acquire(ctx context.Context, x store.Session, cs []store.Claim) ([]store.Outcome, error) {
	outs, err := s.watchless.Acquire(ctx, x, cs)
	for i := range outs {
		outs[i].Record.Granted = time.Time{}
	}
	return outs, err
}

func TestATermKnowsWhenItHeard(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		h := start(t, untold{blind(s)}, "a").hold("job")
		require.True(t, info(t, h).Granted.Equal(time.Now()))
	})
}

// TestATermIsTrustedForAsLongAsWhatItHangsOn: until its parent's end, when that is sooner.
func TestATermIsTrustedForAsLongAsWhatItHangsOn(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		parent := a.hold("parent", lease.WithTTL(2*time.Second))
		child := a.hold("child", lease.WithParent(parent), lease.WithTTL(time.Minute))
		term, _ := a.hold("grandchild", lease.WithParent(child), lease.WithTTL(time.Minute)).Term()
		told := term.(lease.Informed).Info().TrustedUntil
		require.True(t, told.Equal(info(t, parent).TrustedUntil), "%v", told)
		a.clock.Freeze() // nothing ends it but the time
		a.store.Partition()
		time.Sleep(2 * time.Second)
		a.clock.Thaw()
		require.False(t, term.CheckAlive())
		require.True(t, term.(lease.Informed).Info().TrustedUntil.IsZero())
	})
}

// TestNothingDecidesByWhatIsTold: what terms and records tell people is read nowhere in what
// decides who owns what, or what runs.
func TestNothingDecidesByWhatIsTold(t *testing.T) {
	told := []string{"Granted", "TrustedUntil", "Renewals"}
	files := 0
	for _, dir := range []string{".", "../singleton", "../sharding", "../membership"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"leasetest", "observed", "testdata"}, d.Name()): // kits, and a store that keeps it
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "term_info.go":
				return nil
			}
			files++
			parsed, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(told, sel.Sel.Name) {
					t.Errorf("%s reads %s", path, sel.Sel.Name)
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, files, 60)
}
