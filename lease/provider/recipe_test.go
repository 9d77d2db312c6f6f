package provider_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
)

// This file has the recipe of functions that follow one another.

// runs are the functions that wait for a key, in order: a queue of the platform's, or a table.
type runs interface {
	// Add puts a run at the end, unless it waits already; false: its work is done.
	Add(ctx context.Context, key, run string) (waits bool, err error)
	// End notes that the work of a run is done, and takes it out.
	End(ctx context.Context, key, run string) error
	First(ctx context.Context, key string) (run string, ok bool, err error)
	// Invoke has the function called for a run, soon and at least once; for one run no two at a time.
	Invoke(ctx context.Context, run string) error
}

// leases is what a worker needs of a provider.Provider.
type leases interface {
	Acquire(ctx context.Context, key, owner string, ttl time.Duration) (provider.Result, error)
	Release(ctx context.Context, key, owner string) error
	Transfer(ctx context.Context, key, from, to string, ttl time.Duration) (bool, error)
}

// worker works on keys in functions that live for a moment.
type worker struct {
	leases leases
	runs   runs
	do     func(ctx context.Context, key string, token lease.Token) error
}

const invocation = 30 * time.Second // a function lives no longer

// work is what the function does that was invoked for run. If another run has the key, this one is
// invoked again when its turn has come; after an error, too, by the platform.
func (w *worker) work(ctx context.Context, key, run string) error {
	waits, err := w.runs.Add(ctx, key, run) // first, so that who has the key sees it
	if err != nil {
		return err
	}
	if waits {
		r, err := w.leases.Acquire(ctx, key, run, invocation)
		if err != nil || !r.Acquired {
			return err // lease.ErrUnknown: the same run asks again, and learns what it has
		}
		until, cancel := context.WithDeadline(ctx, r.Expires)
		defer cancel()
		if err := w.do(until, key, r.Token); err != nil {
			return err
		}
		if err := w.runs.End(ctx, key, run); err != nil {
			return err
		}
	}
	return w.handOn(ctx, key, run)
}

// handOn gives the key to the run that has waited longest.
func (w *worker) handOn(ctx context.Context, key, run string) error {
	next, ok, err := w.runs.First(ctx, key)
	if err != nil {
		return err
	}
	if ok { // with no gap
		if _, err := w.leases.Transfer(ctx, key, run, next, invocation); err != nil {
			return err
		}
		return w.runs.Invoke(ctx, next)
	}
	if err := w.leases.Release(ctx, key, run); err != nil {
		return err
	}
	next, ok, err = w.runs.First(ctx, key) // it came before the release, and was refused
	if err != nil || !ok {
		return err
	}
	return w.runs.Invoke(ctx, next)
}

// platform calls functions, again if they fail, and has their queue.
type platform struct {
	t      *testing.T
	worker *worker
	calls  sync.WaitGroup

	mu    sync.Mutex
	queue []string
	ended map[string]bool
	turns map[string]chan struct{} // of the calls of a run
}

func (p *platform) Add(_ context.Context, _, run string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended[run] && !slices.Contains(p.queue, run) {
		p.queue = append(p.queue, run)
	}
	return !p.ended[run], nil
}

func (p *platform) End(_ context.Context, _, run string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[run] = true
	p.queue = slices.DeleteFunc(p.queue, func(r string) bool { return r == run })
	return nil
}

func (p *platform) First(context.Context, string) (string, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return "", false, nil
	}
	return p.queue[0], true, nil
}

func (p *platform) Invoke(_ context.Context, run string) error {
	p.mu.Lock()
	turn := p.turns[run]
	if turn == nil {
		turn = make(chan struct{}, 1)
		p.turns[run] = turn
	}
	p.mu.Unlock()
	p.calls.Go(func() {
		for range 100 {
			turn <- struct{}{}
			ctx, cancel := context.WithTimeout(p.t.Context(), invocation)
			err := p.worker.work(ctx, "invoice/7", run)
			cancel()
			<-turn
			if err == nil {
				return
			}
			time.Sleep(time.Second)
		}
		p.t.Errorf("run %s never ended", run)
	})
	return nil
}

var errDied = errors.New("the function died")

// unsteady are leases that take their time, and whose callers die, before what they ask for is done
// or behind it.
type unsteady struct {
	leases
	dies func() bool
}

func (u unsteady) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (provider.Result, error) {
	if u.dies() {
		return provider.Result{}, errDied
	}
	r, err := u.leases.Acquire(ctx, key, owner, ttl)
	if u.dies() {
		return provider.Result{}, errDied
	}
	return r, err
}

func (u unsteady) Release(ctx context.Context, key, owner string) error {
	if u.dies() {
		return errDied
	}
	err := u.leases.Release(ctx, key, owner)
	if u.dies() {
		return errDied
	}
	return err
}

func (u unsteady) Transfer(ctx context.Context, key, from, to string, ttl time.Duration) (bool, error) {
	if u.dies() {
		return false, errDied
	}
	ok, err := u.leases.Transfer(ctx, key, from, to, ttl)
	if u.dies() {
		return false, errDied
	}
	return ok, err
}

// Each run is done once, one at a time, and the key is free at the end, also where functions die.
func TestRecipeFunctionsFollowOneAnother(t *testing.T) {
	for i := range 100 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { followOneAnother(t, seed, i%2 == 0) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func followOneAnother(t *testing.T, seed uint64, dies bool) {
	made, err := provider.New(memory.New())
	require.NoError(t, err)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	died := func() bool {
		time.Sleep(time.Duration(draw(200)) * time.Millisecond)
		return dies && draw(8) == 0
	}
	p := &platform{t: t, ended: map[string]bool{}, turns: map[string]chan struct{}{}}
	working, last := 0, lease.Token(0)
	var done []string
	p.worker = &worker{leases: unsteady{made, died}, runs: p, do: func(ctx context.Context, key string, token lease.Token) error {
		if died() {
			return errDied
		}
		mu.Lock()
		working++
		if working != 1 || token < last {
			t.Errorf("%d at a time, token %d after %d", working, token, last)
		}
		last = token
		mu.Unlock()
		time.Sleep(time.Duration(draw(1000)) * time.Millisecond)
		run, err := made.Owner(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		working--
		done = append(done, run)
		return errors.Join(err, ctx.Err())
	}}
	all := 2 + draw(10)
	pause := 800 + draw(1200) // or there is always one that waits
	for i := range all {
		require.NoError(t, p.Invoke(t.Context(), fmt.Sprint("run-", i)))
		time.Sleep(time.Duration(draw(pause)) * time.Millisecond)
	}
	p.calls.Wait()
	slices.Sort(done)
	require.Len(t, slices.Compact(done), all)
	require.Len(t, done, all, "a run whose work is done does it no more")
	require.Empty(t, p.queue)
	owner, err := made.Owner(t.Context(), "invoice/7")
	require.NoError(t, err)
	require.Empty(t, owner)
}
