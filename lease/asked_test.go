package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
)

// A holder that is asked to release its lease loses trust at once, and the name when its work has
// stopped, however long that takes.
func TestAnAskedReleaseWaitsForTheOwner(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		child, err := a.Lease("child", lease.WithParent(la))
		require.NoError(t, err)
		won, err := child.Acquire(t.Context())
		require.True(t, won, err)
		term, _ := la.Term()
		hangs, _ := child.Term()
		losses := make(chan lease.Loss, 1)
		la.OnLost(func(l lease.Loss) { losses <- l })

		require.NoError(t, a.AskRelease("job"))
		require.False(t, la.CheckAlive())
		require.ErrorIs(t, (<-losses).Reason, lease.ErrAsked)
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrAsked)
		require.ErrorIs(t, context.Cause(hangs.Context()), lease.ErrParentLost)
		require.ErrorIs(t, a.AskRelease("job"), lease.ErrNotHeld, "it was asked")
		past, _ := a.Journal().Since(0, time.Time{}, 100)
		require.Equal(t, "acquired job, acquired child, lost child, asked job", toldOf(past))
		time.Sleep(5 * ttl)
		won, err = lb.Acquire(t.Context())
		require.NoError(t, err)
		require.False(t, won, "the work may be running")
		require.NoError(t, child.Release(t.Context()))
		require.NoError(t, la.Release(t.Context()))
		mustWin(t, lb)
	})
}

func TestAskReleaseRefuses(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		a.lease("idle")
		b.hold("job")
		for _, name := range []string{"idle", "job", "no such", ""} {
			require.ErrorIs(t, a.AskRelease(name), lease.ErrNotHeld)
		}
		for name, instead := range map[string]string{
			"singleton/x": "move the singleton", "host/x": "move the singleton", "shard/g/t/1": "drain the node", "region/g/t/a/1": "drain the node",
			"coordinator/g/t": "drain", "layout/g/t": "drain", "member/g/a/1": "drain or stop", "leader/g": "drain or stop",
			"leaving/g/a/1": "drain or stop", "objection/g/a/1": "drain or stop", "candidate/g/x/a/1": "drain or stop",
		} {
			h := a.hold(name)
			err := a.AskRelease(name)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, instead)
			require.True(t, h.CheckAlive())
		}
		require.NoError(t, b.AskRelease("job"))
	})
}

// Run ends with what it was asked for, and what f returned; a slot of a Pool too.
func TestRunIsAskedToRelease(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		own := errors.New("own")
		f := func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return own }
		pool, err := lease.NewPool(a.Keeper, "pool", 1)
		require.NoError(t, err)
		defer pool.Close(t.Context())
		for name, run := range map[string]func() error{
			"job": func() error {
				return lease.Run(t.Context(), a.lease("job"), func(ctx context.Context, _ lease.Term) error { return f(ctx) })
			},
			"pool/0": func() error {
				return pool.Run(t.Context(), func(ctx context.Context, _ int, _ lease.Term) error { return f(ctx) })
			},
		} {
			done := meanwhile(run)
			time.Sleep(time.Second)
			began := time.Now()
			require.NoError(t, a.AskRelease(name))
			err := <-done
			require.ErrorIs(t, err, lease.ErrAsked)
			require.ErrorIs(t, err, own)
			require.Equal(t, time.Second, time.Since(began))
			requireFree(t, store, name)
		}
	})
}

// RunForever and Once let others have what they were asked to release, and take it again after a TTL.
func TestRunForeverStandsBack(t *testing.T) {
	var done bool
	each(t, map[string]runner{
		"RunForever": forever(lease.WithBackoff(time.Millisecond, time.Millisecond)),
		"Once": func(ctx context.Context, l lease.Lease, f func(context.Context, lease.Term) error) error {
			return lease.Once(ctx, l, func(context.Context) (bool, error) { return done, nil }, f)
		},
	}, func(t *testing.T, store *memory.Store, run runner) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan string, 9)
		ends := map[string]<-chan error{}
		nodes := map[string]*node{}
		for _, id := range []string{"a", "b"} {
			n := start(t, store, id)
			nodes[id] = n
			ends[id] = meanwhile(func() error {
				return run(ctx, n.lease("job"), func(ctx context.Context, _ lease.Term) error {
					begun <- id
					<-ctx.Done()
					return nil
				})
			})
			time.Sleep(time.Second)
		}
		require.Equal(t, "a", <-begun)
		at := time.Now()
		require.NoError(t, nodes["a"].AskRelease("job"))
		require.Equal(t, "b", <-begun)
		require.Less(t, time.Since(at), time.Second)
		time.Sleep(2 * time.Second)
		require.NoError(t, nodes["b"].AskRelease("job"))
		require.Equal(t, "a", <-begun, "the first to be asked is the first to come back")
		require.GreaterOrEqual(t, time.Since(at), ttl)
		require.Less(t, time.Since(at), ttl+time.Second)
		require.NoError(t, nodes["a"].AskRelease("job"))
		time.Sleep(time.Second)
		cancel() // also while it stands back
		require.ErrorIs(t, <-ends["a"], context.Canceled)
		require.ErrorIs(t, <-ends["b"], context.Canceled)
		synctest.Wait()
		require.Empty(t, begun)
	})
}

// toldOf is what a journal has of leases.
func toldOf(past []journal.Event) string {
	var all []string
	for _, e := range past {
		all = append(all, e.Kind+" "+e.Name)
	}
	return strings.Join(all, ", ")
}
