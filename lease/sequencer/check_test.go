package sequencer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// keep starts a Keeper, which the test ends.
func keep(t *testing.T, store store.Store, id string) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(store, lease.Config{ID: id, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

// hold acquires a lease of the Keeper's.
func hold(t *testing.T, k *lease.Keeper, name string) (*lease.Handle, lease.Term) {
	t.Helper()
	h, err := k.Lease(name)
	require.NoError(t, err)
	term, err := h.AcquireTerm(t.Context())
	require.NoError(t, err)
	return h, term
}

func of(t *testing.T, o lease.Ownership) sequencer.Sequencer {
	t.Helper()
	s, err := sequencer.Of(o)
	require.NoError(t, err)
	return s
}

func TestCheckAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		check := func(s sequencer.Sequencer) error { return s.Check(t.Context(), b) }
		h, term := hold(t, a, "job")
		first := of(t, term)
		require.NoError(t, check(first))
		require.NoError(t, check(first))

		var stale *sequencer.StaleError
		err := check(seq("job", first.Token+5))
		require.ErrorIs(t, err, lease.ErrStale, "the store did not give that token")
		require.ErrorAs(t, err, &stale)
		require.False(t, stale.Superseded())
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		require.ErrorContains(t, err, "has given tokens up to")

		err = check(seq("job/other", first.Token))
		require.ErrorIs(t, err, lease.ErrStale, "the token of another lease")

		require.NoError(t, h.Release(t.Context()))
		err = check(first)
		require.ErrorIs(t, err, lease.ErrStale)
		require.ErrorIs(t, err, lease.ErrNotHeld)
		require.ErrorAs(t, err, &stale)
		require.Equal(t, sequencer.StaleError{Sequencer: first}, *stale)
		require.ErrorContains(t, err, "no owner holds")

		_, term = hold(t, b, "job")
		err = check(first)
		require.ErrorAs(t, err, &stale)
		require.True(t, stale.Superseded())
		require.Equal(t, term.Token(), stale.Seen)
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		require.NoError(t, check(of(t, term)))
	})
}

func TestCheckDoesNotGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		link := faultstore.Wrap(store)
		k := keep(t, link, "a")
		_, term := hold(t, k, "job")
		s := of(t, term)
		link.Partition()
		require.ErrorIs(t, s.Check(t.Context(), k), lease.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Check(ctx, k)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrStale)
		link.Heal()
		require.NoError(t, s.Check(t.Context(), k))
	})
}

// readerFunc is a Reader of the test's.
type readerFunc func(ctx context.Context, name string) (lease.Record, error)

func (f readerFunc) Get(ctx context.Context, name string) (lease.Record, error) { return f(ctx, name) }

func TestReadersThatMisbehave(t *testing.T) {
	s := seq("job", 7)
	for says, r := range map[string]readerFunc{
		"panicked: oops":        func(context.Context, string) (lease.Record, error) { panic("oops") },
		"a record of \"other\"": func(context.Context, string) (lease.Record, error) { return lease.Record{Name: "other", Token: 7}, nil },
		"under token 0":         func(context.Context, string) (lease.Record, error) { return lease.Record{Name: "job"}, nil },
		"disk":                  func(context.Context, string) (lease.Record, error) { return lease.Record{}, errors.New("disk") },
		"not a lease record":    func(context.Context, string) (lease.Record, error) { return lease.Record{}, lease.ErrBadRecord },
	} {
		err := s.Check(t.Context(), r)
		require.ErrorIs(t, err, lease.ErrUnknown, says)
		require.NotErrorIs(t, err, lease.ErrStale, says)
		require.ErrorContains(t, err, says)
	}
}

func TestBadInput(t *testing.T) {
	reader := keep(t, memory.New(), "a")
	good := seq("job", 1)
	nothing := func(context.Context) error { return nil }
	fences, err := sequencer.NewFences()
	require.NoError(t, err)
	for says, err := range map[string]error{
		"ctx: ":       good.Check(inputtest.None, reader),
		"ctx":         fences.Do(inputtest.None, good, nothing),
		"reader: ":    good.Check(t.Context(), nil),
		"reader":      good.Check(t.Context(), (*lease.Keeper)(nil)),
		"token 0":     seq("job", 0).Check(t.Context(), reader),
		"name":        seq("", 1).Check(t.Context(), reader),
		"work: ":      fences.Do(t.Context(), good, nil),
		"token 0, mu": fences.Do(t.Context(), seq("job", 0), nothing),
		"lease name":  fences.Advance(t.Context(), sequencer.Sequencer{}),
		"NewFences":   new(sequencer.Fences).Advance(t.Context(), good),
		"zero value":  (*sequencer.Fences)(nil).Do(t.Context(), good, nothing),
	} {
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, fences.Marks())
	var unmade *sequencer.Fences
	require.Empty(t, unmade.Marks())
	require.False(t, unmade.Forget("job"))
	_, ok := sequencer.FromContext(inputtest.None)
	require.False(t, ok)
	_, ok = sequencer.FromContext(sequencer.NewContext(inputtest.None, owned{"job", 1}))
	require.True(t, ok)
	for says, opt := range map[string]sequencer.Option{
		"nil Option":     nil,
		"WithReader":     sequencer.WithReader(nil),
		"WithReader: ":   sequencer.WithReader((*lease.Keeper)(nil)),
		"WithLimit: ":    sequencer.WithLimit(0),
		"2147483647":     sequencer.WithLimit(1 << 31),
		"WithPatience: ": sequencer.WithPatience(-1),
		"WithPatience":   sequencer.WithPatience(366 * 24 * time.Hour),
		"token 0":        sequencer.WithMarks(map[string]lease.Token{"a": 0}),
		"WithMarks: ":    sequencer.WithMarks(map[string]lease.Token{"a//b": 1}),
	} {
		f, err := sequencer.NewFences(opt)
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
		require.Nil(t, f)
	}
	_, err = sequencer.NewFences(sequencer.WithLimit(1), sequencer.WithMarks(map[string]lease.Token{"a": 1, "b": 1}))
	require.ErrorContains(t, err, "WithMarks")
}
