// Package remembertest checks that a sharding.EntityStore keeps its contract.
//
//	func TestConformance(t *testing.T) {
//		remembertest.Run(t, func(t *testing.T) (sharding.EntityStore, func(string) lease.Ownership) { … })
//	}
package remembertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Factory makes a fresh and empty store for one case, and a function that returns
// a new ownership of a name, a valid lease name: each call's has a higher token than
// the one before it, which by then has ended. own is called from the goroutine of
// the case. What has to be closed is closed with t.Cleanup.
type Factory func(t *testing.T) (store sharding.EntityStore, own func(name string) lease.Ownership)

// soon is within what time a call must end after its context has.
const soon = 5 * time.Second

// bound is for how long any one call may take.
const bound = time.Minute

// Run runs all cases, each a subtest, one after another.
func Run(t *testing.T, factory Factory) {
	for _, c := range slices.Concat(basicCases, ownerCases, contextCases) {
		t.Run(c.name, func(t *testing.T) {
			store, own := factory(t)
			k := &kit{T: t, store: store, own: own}
			o := own(name)
			k.load(o)
			c.run(k, o)
		})
	}
}

type testCase struct {
	name string
	run  func(k *kit, o lease.Ownership) // o is of the shard's owner, which has loaded it
}

// kit is what one case works with.
type kit struct {
	*testing.T
	store sharding.EntityStore
	own   func(name string) lease.Ownership
}

// name is the shard of cases that need only one.
const name = "shard/g/t/1"

func (k *kit) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.Context(), bound)
}

func (k *kit) tryUpdate(o lease.Ownership, add, remove []string) error {
	ctx, cancel := k.ctx()
	defer cancel()
	return k.store.Update(ctx, o, add, remove)
}

func (k *kit) update(o lease.Ownership, add, remove []string) {
	k.Helper()
	if err := k.tryUpdate(o, add, remove); err != nil {
		k.Fatalf("an Update by the owner must be applied: %s, token %d, %d to add, %d to remove: %v",
			o.Name(), o.Token(), len(add), len(remove), err)
	}
}

func (k *kit) load(o lease.Ownership) []string {
	k.Helper()
	ctx, cancel := k.ctx()
	defer cancel()
	ids, err := k.store.Load(ctx, o)
	if err != nil {
		k.Fatalf("a Load by the owner must succeed: %s, token %d: %v", o.Name(), o.Token(), err)
	}
	slices.Sort(ids)
	return ids
}

// stands checks what is remembered: exactly the ids given.
func (k *kit) stands(o lease.Ownership, why string, want ...string) {
	k.Helper()
	got := k.load(o)
	want = slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	k.Fatalf("%s: %d ids, want %d; from the first that differs: %.200q, want %.200q",
		why, len(got), len(want), got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
}

// refused checks that err is ErrStaleOwner.
func (k *kit) refused(err error, what string) {
	k.Helper()
	if !errors.Is(err, sharding.ErrStaleOwner) {
		k.Fatalf("%s of an owner that was succeeded must be ErrStaleOwner: %v", what, err)
	}
}

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

var contextCases = []testCase{
	{"cancelled", cancelled},
	{"cancelled-while-it-runs", cancelledLate},
}

func cancelled(k *kit, o lease.Ownership) {
	k.update(o, []string{"a"}, nil)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	began := time.Now()
	for range 20 {
		if err := k.store.Update(ctx, o, []string{"b"}, []string{"a"}); !errors.Is(err, context.Canceled) {
			k.Fatalf("an Update whose context is done must say so: %v", err)
		}
		if ids, err := k.store.Load(ctx, o); !errors.Is(err, context.Canceled) || len(ids) > 0 {
			k.Fatalf("a Load whose context is done must say so: %q, %v", ids, err)
		}
	}
	k.soon(began)
	k.stands(o, "an Update whose context is done already applies nothing", "a")
}

// cancelledLate: what a call did whose context ended on the way is not known; the
// same once more makes it known.
func cancelledLate(k *kit, o lease.Ownership) {
	ids := numbered(2000)
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(k.Context(), after)
		err := k.store.Update(ctx, o, ids, nil)
		ended := time.Now().Add(-after)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			k.Fatalf("an Update whose context ended must say so: %v", err)
		}
		k.soon(ended)
		k.update(o, ids, nil)
		k.stands(o, "the same Update once more", ids...)
		k.update(o, nil, ids)
		k.stands(o, "all was removed")
	}
}

func (k *kit) soon(since time.Time) {
	k.Helper()
	if took := time.Since(since); took > soon {
		k.Errorf("calls must end soon after their context: took %v", took)
	}
}
