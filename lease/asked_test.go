package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// deaf is a lease that fails when it is asked whether it is alive.
type deaf struct {
	lease.Lease
	fail  func()
	bad   atomic.Bool
	asked atomic.Int32
}

func (d *deaf) CheckAlive() bool {
	d.asked.Add(1)
	if d.bad.Load() {
		d.fail()
	}
	return d.Lease.CheckAlive()
}

// deafWrapper is one whose terms are found within.
type deafWrapper struct{ *deaf }

func (d deafWrapper) Unwrap() lease.Lease { return d.Lease }

// deafTermed is one that has a term of its own, which fails.
type deafTermed struct{ *deaf }

func (d deafTermed) Term() (lease.Term, bool) {
	t, ok := d.Lease.(lease.Termed).Term()
	return &deafTerm{t, d.deaf}, ok
}

type deafTerm struct {
	lease.Term
	d *deaf
}

func (t *deafTerm) Check() (time.Duration, bool) { return 0, t.d.CheckAlive() }

func TestATermWhoseLeaseCantBeAskedHasEnded(t *testing.T) {
	manners := map[string]func(){"panics": func() { panic("a user's bug") }}
	kinds := map[string]func(*deaf) lease.Lease{
		"bare":     func(d *deaf) lease.Lease { return opaque{d} },
		"wrapping": func(d *deaf) lease.Lease { return deafWrapper{d} },
		"termed":   func(d *deaf) lease.Lease { return deafTermed{d} },
	}
	for manner, fail := range manners {
		for kind, of := range kinds {
			for _, at := range []string{"later", "at once"} {
				t.Run(manner+"/"+kind+"/"+at, func(t *testing.T) {
					bubble(t, func(t *testing.T, store *memory.Store) {
						d := &deaf{Lease: start(t, store, "a").lease("job"), fail: fail}
						mustWin(t, d)
						l := of(d)
						d.bad.Store(at == "at once" && kind != "termed")
						term, stop := lease.TermOf(l)
						defer stop()
						if !d.bad.Load() {
							require.True(t, term.CheckAlive())
							require.NoError(t, term.Context().Err())
							d.bad.Store(true)
							require.False(t, term.CheckAlive())
						}
						asked := d.asked.Load()
						require.False(t, term.CheckAlive())
						_, alive := term.Check()
						require.False(t, alive)
						d.bad.Store(false)
						require.False(t, term.CheckAlive(), "it has ended")
						require.Equal(t, asked, d.asked.Load(), "it is not asked again")
						require.ErrorIs(t, context.Cause(term.Context()), lease.ErrInconsistent)
						require.ErrorContains(t, context.Cause(term.Context()), "CheckAlive")
					})
				})
			}
		}
	}
}

// Run under such a lease says why it ended.
func TestRunUnderALeaseThatCantBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		d := &deaf{Lease: opaque{h}, fail: func() { panic("a user's bug") }}
		d.bad.Store(true)
		err := lease.Run(t.Context(), d, func(context.Context, lease.Term) error { return errors.New("it ran") })
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.ErrorContains(t, err, "a user's bug")
		require.NotContains(t, err.Error(), "it ran")
		requireFree(t, store, "job")
	})
}

// To be contained costs a question no allocation.
func TestATermIsAskedWithoutAllocations(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		mustWin(t, h)
		for what, l := range map[string]lease.Lease{"made": opaque{h}, "narrow": wrapped{h}, "own": h,
			"termed": deafTermed{&deaf{Lease: h}}} {
			term, stop := lease.TermOf(l)
			require.Zero(t, testing.AllocsPerRun(100, func() { require.True(t, term.CheckAlive()) }), what)
			stop()
		}
	})
}
