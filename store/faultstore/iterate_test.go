package faultstore_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// iteration is what came of a List or a Watch.
type iteration struct {
	values int
	synced bool
	first  time.Duration // when the first value or the error came
	err    error
}

func (k kit) list(ctx context.Context) (it iteration) {
	for _, err := range k.List(ctx, store.Query{}) {
		it.take(k, err)
	}
	return it
}

func (k kit) watch(ctx context.Context) iteration { return k.look(ctx, store.Scope{}) }
func (k kit) deletions(ctx context.Context) iteration {
	return k.look(ctx, store.Scope{Deletions: true})
}

// look watches until store.EventSynced, and a moment longer.
func (k kit) look(ctx context.Context, of store.Scope) (it iteration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for e, err := range k.Watch(ctx, of) {
		it.take(k, err)
		if e.Kind == store.EventSynced {
			it.synced = true
			time.AfterFunc(time.Millisecond, cancel)
		}
	}
	return it
}

func (it *iteration) take(k kit, err error) {
	if it.values == 0 && it.err == nil {
		it.first = time.Since(k.begin)
	}
	if err != nil {
		it.err = err
		return
	}
	it.values++
}

func TestIterationsMeetFaults(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		fault        faultstore.Fault
		list, watch  int // values
		synced, ends bool
		at           time.Duration
	}{
		{faultstore.Fault{}, 3, 4, true, false, 0},
		{faultstore.Fault{Kind: faultstore.Delay, Delay: 2 * s}, 3, 4, true, false, 2 * s},
		{faultstore.Fault{Kind: faultstore.Delay, Delay: 9 * s}, 0, 0, false, true, 5 * s},
		{faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * s}, 3, 4, true, false, 2 * s},
		{faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 9 * s}, 0, 0, false, true, 5 * s},
		{faultstore.Fault{Kind: faultstore.Drop}, 0, 0, false, true, 0},
		{faultstore.Fault{Kind: faultstore.Deny}, 0, 0, false, true, 0},
		{faultstore.Fault{Kind: faultstore.LandLate, Delay: s}, 0, 0, false, true, 0},
		{faultstore.Fault{Kind: faultstore.ApplyThenFail}, 1, 4, true, true, 0},
	} {
		t.Run(c.fault.Kind.String()+" "+c.fault.Delay.String(), func(t *testing.T) {
			run := func(want int, it func(kit, context.Context) iteration) iteration {
				var got iteration
				bubble(t, func(t *testing.T, k kit) {
					for _, name := range []string{"n", "m", "o"} {
						_, err := k.inner.Acquire(t.Context(), node, []store.Claim{{Name: name}})
						require.NoError(t, err)
					}
					k.always(c.fault)
					ctx, cancel := context.WithTimeout(t.Context(), 5*s)
					defer cancel()
					got = it(k, ctx)
					require.Equal(t, want, got.values)
					require.Equal(t, c.at, got.first)
				})
				return got
			}
			list := run(c.list, kit.list)
			if c.ends {
				require.ErrorIs(t, list.err, faultstore.ErrInjected)
			} else {
				require.NoError(t, list.err)
			}
			for _, watch := range []iteration{run(c.watch, kit.watch), run(min(c.watch, 1), kit.deletions)} { // without a snapshot
				require.Equal(t, c.synced, watch.synced)
				if c.ends {
					require.ErrorIs(t, watch.err, faultstore.ErrInjected)
				} else {
					require.NotErrorIs(t, watch.err, faultstore.ErrInjected)
					require.ErrorIs(t, watch.err, context.Canceled)
				}
			}
		})
	}
}

func TestNewsThatNothingStandsIsLateOrLostToo(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		k.always(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		require.Equal(t, iteration{}, k.list(t.Context()))
		k.after(t, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, k.list(ctx).err, faultstore.ErrInjected)
		k.always(faultstore.Fault{Kind: faultstore.ApplyThenFail})
		require.ErrorIs(t, k.list(t.Context()).err, faultstore.ErrInjected)
	})
}

func TestAWatchThatRunsIsCut(t *testing.T) {
	for how, cut := range map[string]func(kit){"partition": func(k kit) { k.Partition() }, "cut": func(k kit) { k.CutWatches() }} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, k kit) {
				var end error
				puts := 0
				var wg sync.WaitGroup
				wg.Go(func() {
					for e, err := range k.Watch(t.Context(), store.Scope{}) {
						if end = err; e.Kind == store.EventPut {
							puts++
							time.Sleep(time.Second) // the cut comes meanwhile, and another event before it
						}
					}
				})
				synctest.Wait()
				for _, name := range []string{"n", "m"} {
					_, err := k.inner.Acquire(t.Context(), node, []store.Claim{{Name: name}})
					require.NoError(t, err)
				}
				time.Sleep(500 * time.Millisecond)
				cut(k)
				wg.Wait()
				require.Equal(t, 1, puts)
				require.ErrorIs(t, end, faultstore.ErrInjected)
				require.Equal(t, 1, k.Injected(faultstore.Watch))
				require.NotErrorIs(t, end, context.Canceled)

				k.Heal()
				it := k.watch(t.Context())
				require.True(t, it.synced, "watched again, it lists anew")
				require.Equal(t, 3, it.values)
			})
		})
	}
}

func TestAnIdleWatchIsCutAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		time.AfterFunc(time.Second, k.CutWatches)
		var end error
		for _, err := range k.Watch(t.Context(), store.Scope{}) {
			end = err
		}
		require.ErrorIs(t, end, faultstore.ErrInjected)
		require.Equal(t, 1, k.Injected(faultstore.Watch))
		k.after(t, time.Second)
	})
}

// A watch that is held up on its way is of the store that is in place when it arrives.
func TestAWatchThatIsHeldUpMeetsTheStoreInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := memory.New(), memory.New()
		own := store.Session{ID: 1, Owner: store.Owner{ID: "a", Incarnation: "1"}, TTL: time.Minute}
		_, err := after.OpenSession(t.Context(), own)
		require.NoError(t, err)
		_, err = after.Acquire(t.Context(), own, []store.Claim{{Name: "job", Nonce: 1}})
		require.NoError(t, err)
		w := faultstore.NewSwitch(before)
		w.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second}, faultstore.Watch))
		time.AfterFunc(time.Second/2, func() { w.To(after) })
		for e, err := range w.Watch(t.Context(), store.Scope{}) {
			require.NoError(t, err)
			require.Equal(t, "job", e.Record.Name)
			break
		}
	})
}
