package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// What becomes of one claim under each fault.
func TestFaults(t *testing.T) {
	const s = time.Second
	type F = faultstore.Fault
	for _, c := range []struct {
		fault   F
		timeout time.Duration // of the caller; 0: none
		failed  bool
		at      time.Duration // when the caller has its answer
		applied bool          // by then
		landed  time.Duration // when it is applied, if later; 0: never; 1: at once, but perhaps after the answer
	}{
		{F{}, 5 * s, false, 0, true, 0},
		{F{Kind: faultstore.Delay, Delay: 2 * s}, 5 * s, false, 2 * s, true, 0},
		{F{Kind: faultstore.Delay, Delay: -s}, 5 * s, false, 0, true, 0},
		{F{Kind: faultstore.Delay, Delay: 2 * s}, 0, false, 2 * s, true, 0},
		{F{Kind: faultstore.Delay, Delay: 7 * s}, 5 * s, true, 5 * s, false, 0},
		{F{Kind: faultstore.Delay, Delay: 5 * s}, 5 * s, true, 5 * s, false, 0},
		{F{Kind: faultstore.Drop}, 5 * s, true, 0, false, 0},
		{F{Kind: faultstore.Drop, Hang: true}, 5 * s, true, 5 * s, false, 0},
		{F{Kind: faultstore.ApplyThenFail}, 5 * s, true, 0, true, 0},
		{F{Kind: faultstore.ApplyThenFail, Hang: true}, 5 * s, true, 5 * s, true, 0},
		{F{Kind: faultstore.ReplyLate, Delay: 2 * s}, 5 * s, false, 2 * s, true, 0},
		{F{Kind: faultstore.ReplyLate, Delay: 7 * s}, 5 * s, true, 5 * s, true, 0},
		{F{Kind: faultstore.ReplyLate, Delay: 5 * s}, 5 * s, true, 5 * s, true, 0},
		{F{Kind: faultstore.LandLate, Delay: 7 * s}, 5 * s, true, 0, false, 7 * s},
		{F{Kind: faultstore.LandLate, Delay: 7 * s, Hang: true}, 5 * s, true, 5 * s, false, 7 * s},
		{F{Kind: faultstore.LandLate, Delay: 2 * s, Hang: true}, 5 * s, true, 5 * s, true, 0},
		{F{Kind: faultstore.LandLate}, 5 * s, true, 0, false, 1},
		{F{Kind: faultstore.Deny}, 5 * s, true, 0, false, 0},
	} {
		t.Run(fmt.Sprint(c.fault, " for ", c.timeout), func(t *testing.T) {
			bubble(t, func(t *testing.T, k kit) {
				k.always(c.fault)
				err := k.acquire(t, c.timeout)
				k.after(t, c.at)
				if c.landed != 1 {
					require.Equal(t, c.applied, k.applied(t))
				}
				require.Equal(t, c.failed, err != nil, "%v", err)
				if c.failed {
					require.ErrorIs(t, err, faultstore.ErrInjected)
					require.ErrorContains(t, err, "Acquire")
					require.Equal(t, c.fault.Kind == faultstore.Deny, errors.Is(err, store.ErrDenied))
					require.ErrorContains(t, err, c.fault.Kind.String())
				}
				if c.failed && c.at == c.timeout {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, errWhy)
				}
				if c.landed > 0 {
					if rest := c.landed - c.at; rest > 1 {
						time.Sleep(rest - 1)
						require.False(t, k.applied(t), "too early")
					}
					k.Wait()
					require.True(t, k.applied(t))
					require.LessOrEqual(t, time.Since(k.begin), c.landed)
				} else {
					time.Sleep(time.Minute)
					require.Equal(t, c.applied, k.applied(t))
				}
				want := 1
				if c.fault.Kind == faultstore.None {
					want = 0
				}
				require.Equal(t, want, k.Injected(faultstore.Acquire))
				require.Zero(t, k.Injected(faultstore.Release))
				require.Zero(t, k.Injected(faultstore.Op(99)))
			})
		})
	}
}

func TestACallOfADoneContextIsNeverSent(t *testing.T) {
	for _, kind := range []faultstore.Kind{
		faultstore.None, faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate,
		faultstore.LandLate,
	} {
		bubble(t, func(t *testing.T, k kit) {
			k.always(faultstore.Fault{Kind: kind, Hang: true})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := k.Acquire(ctx, node, []store.Claim{{Name: "n"}})
			require.ErrorIs(t, err, context.Canceled)
			time.Sleep(time.Minute)
			require.False(t, k.applied(t), kind)
		})
	}
}

func TestAPartitionHoldsUpEveryCallOnItsWayThereAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k.Partition()
		k.Partition() // twice is once
		err := k.acquire(t, time.Second)
		require.ErrorIs(t, err, faultstore.ErrInjected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		k.after(t, time.Second)
		require.Equal(t, 1, k.Injected(faultstore.Acquire))
		for _, err := range k.List(ctx, store.Query{}) {
			require.ErrorIs(t, err, faultstore.ErrInjected)
		}
		for _, err := range k.Watch(ctx, store.Scope{}) {
			require.ErrorIs(t, err, faultstore.ErrInjected)
		}

		time.AfterFunc(time.Second, k.Heal)
		require.NoError(t, k.acquire(t, time.Minute))
		k.after(t, 2*time.Second)
		require.Equal(t, 1, k.Injected(faultstore.Acquire), "a call that got through in the end met no fault")
		k.Heal() // nothing to heal is nothing

		// A reply under way when the partition begins does not arrive.
		k.always(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, k.Partition)
		time.AfterFunc(5*time.Second, k.Heal)
		_, err = k.Get(t.Context(), "n")
		require.NoError(t, err)
		k.after(t, 7*time.Second)

		// Nor does a request.
		k.always(faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, k.Partition)
		before := k.inner.Stats().Get
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = k.Get(ctx, "n")
		require.ErrorIs(t, err, faultstore.ErrInjected)
		require.Equal(t, before, k.inner.Stats().Get)
	})
}

func TestALateLandingIsNotHeldUpByAPartitionNorChangedByItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		k.always(faultstore.Fault{Kind: faultstore.LandLate, Delay: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		claims := []store.Claim{{Name: "n", Nonce: 1, Metadata: map[string]string{"k": "v"}}}
		_, err := k.Acquire(ctx, node, claims)
		require.ErrorIs(t, err, faultstore.ErrInjected)
		claims[0].Name, claims[0].Metadata["k"] = "changed", "changed"
		cancel()
		k.Partition()
		k.Wait()
		rs, err := k.inner.Get(t.Context(), "n")
		require.NoError(t, err)
		require.Len(t, rs, 1)
		require.Equal(t, map[string]string{"k": "v"}, rs[0].Metadata)
		k.after(t, time.Second)
		k.Wait() // nothing pends: at once
	})
}

// A rule sees every call, and what it is about; and every call meets its fault.
func TestARuleSeesWhatTheCallIsAbout(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		var calls []faultstore.Call
		fault := faultstore.Fault{}
		k.SetRule(func(c faultstore.Call) faultstore.Fault {
			calls = append(calls, c)
			return fault
		})
		ctx := t.Context()
		other := store.Session{ID: 6, Owner: node.Owner, TTL: time.Hour}
		var held []store.Held
		all := func() []error {
			_, opened := k.OpenSession(ctx, other)
			out, acquired := k.Acquire(ctx, node, []store.Claim{{Name: "n"}, {Name: "m"}})
			for _, o := range out {
				held = append(held, o.Record.Held())
			}
			grants, renewed := k.Renew(ctx, []store.Session{node, other})
			_, none := k.Renew(ctx, nil)
			moved, transferred := k.Transfer(ctx, []store.Transfer{{
				Held: held[0], Metadata: map[string]string{"k": "v"},
				To: store.Offer{Name: "n", Owner: other.Owner, Session: 6, TTL: time.Hour},
			}})
			outs, released := k.Release(ctx, held[1:])
			rs, got := k.Get(ctx, "n", "m")
			var listed, watched error
			for _, listed = range k.List(ctx, store.Query{Prefix: "pre"}) {
			}
			for _, watched = range k.Watch(ctx, store.Scope{Prefix: "pre"}) {
				break
			}
			if fault.Kind == faultstore.None {
				require.Len(t, grants, 2)
				require.True(t, moved[0].OK)
				require.True(t, outs[0].OK)
				require.Equal(t, map[string]string{"k": "v"}, rs[0].Metadata)
			}
			closed := k.CloseSession(ctx, other)
			return []error{
				opened, acquired, renewed, none, transferred, released, got, listed, watched, closed,
			}
		}
		require.NoError(t, errors.Join(all()...))
		want := []faultstore.Call{
			{Op: faultstore.OpenSession, Session: 6},
			{Op: faultstore.Acquire, Session: 5, Names: []string{"n", "m"}},
			{Op: faultstore.Renew, Session: 5, Sessions: []store.SessionID{5, 6}},
			{Op: faultstore.Renew},
			{Op: faultstore.Transfer, Names: []string{"n"}},
			{Op: faultstore.Release, Names: []string{"m"}},
			{Op: faultstore.Get, Names: []string{"n", "m"}},
			{Op: faultstore.List, Names: []string{"pre"}},
			{Op: faultstore.Watch, Names: []string{"pre"}},
			{Op: faultstore.CloseSession, Session: 6},
		}
		require.Equal(t, want, calls)
		before := k.inner.Stats()
		fault.Kind = faultstore.Drop
		for i, err := range all() {
			require.ErrorIs(t, err, faultstore.ErrInjected, "%v", want[i])
			require.Positive(t, k.Injected(want[i].Op), want[i].Op)
		}
		require.Equal(t, before, k.inner.Stats())
		require.Equal(t, "Transfer", faultstore.Transfer.String())
		require.Equal(t, "Op(77)", faultstore.Op(77).String())
		require.Equal(t, "Kind(77)", faultstore.Kind(77).String())
	})
}

// bare hides what an inner store can do beyond store.Store.
type bare struct{ store.Store }

func TestWhatTheInnerStoreLacksIsUnsupported(t *testing.T) {
	s := faultstore.Wrap(bare{memory.New()})
	s.SetRule(func(faultstore.Call) faultstore.Fault { return faultstore.Fault{Kind: faultstore.Drop} })
	_, err := s.Transfer(t.Context(), nil)
	require.ErrorIs(t, err, store.ErrUnsupported)
	n := 0
	for _, err := range s.Watch(t.Context(), store.Scope{}) {
		require.ErrorIs(t, err, store.ErrUnsupported)
		n++
	}
	require.Equal(t, 1, n)
	require.Equal(t, memory.New().Limits(), s.Limits())
}

func TestCallsAndSwitchesMayMeetInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		kinds := []faultstore.Kind{faultstore.None, faultstore.Delay, faultstore.ReplyLate, faultstore.LandLate}
		var mu sync.Mutex
		n := 0
		k.SetRule(func(faultstore.Call) faultstore.Fault {
			mu.Lock()
			defer mu.Unlock()
			n++
			return faultstore.Fault{Kind: kinds[n%len(kinds)], Delay: time.Duration(n%7) * time.Millisecond}
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_, _ = k.Get(ctx, "n")
					for range k.Watch(ctx, store.Scope{}) {
					}
					cancel()
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				k.Partition()
				time.Sleep(time.Millisecond)
				k.Heal()
				k.CutWatches()
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		k.Wait()
		synctest.Wait()
	})
}
