package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// This file has recipes without actors.

func recipeKeeper(t *testing.T, store store.Store, id string) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(store, lease.Config{ID: id, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

// reservation is a seat that is kept for a guest who has not paid yet.
type reservation struct {
	lease *lease.Handle
	term  lease.Term
}

// reserve keeps a seat for a quarter of an hour. If another has it the error is lease.ErrHeld.
func reserve(ctx context.Context, k *lease.Keeper, seat string) (*reservation, error) {
	name, err := lease.Name("seat", seat)
	if err != nil {
		return nil, err
	}
	l, err := k.Lease(name, lease.WithTTL(15*time.Minute), lease.WithRenewal(lease.RenewNever()))
	if errors.Is(err, lease.ErrNameInUse) {
		return nil, fmt.Errorf("%w: by another customer of this node", lease.ErrHeld)
	}
	if err != nil {
		return nil, err
	}
	term, err := l.AcquireTerm(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	context.AfterFunc(term.Context(), func() { // it has ended, or was given back: the name is free here
		_ = l.Close(context.WithoutCancel(ctx))
	})
	return &reservation{l, term}, nil
}

// pay sells the seat, which refuses the token of a reservation that another has followed.
func (r *reservation) pay(ctx context.Context, sell func(ctx context.Context, token lease.Token) error) error {
	if !r.term.CheckAlive() {
		return context.Cause(r.term.Context()) // lease.ErrLapsed: it came too late
	}
	if err := sell(ctx, r.term.Token()); err != nil {
		return err
	}
	return r.lease.Close(ctx) // it is free, here too
}

func TestRecipeReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := recipeKeeper(t, store, "a"), recipeKeeper(t, store, "b")
		seat := lease.NewFence(0)
		sold := 0
		sell := func(_ context.Context, token lease.Token) error {
			return seat.Do(token, func() error { sold++; return nil })
		}
		r, err := reserve(t.Context(), a, "14/F")
		require.NoError(t, err)
		for _, k := range []*lease.Keeper{a, b} {
			_, err = reserve(t.Context(), k, "14/F")
			require.ErrorIs(t, err, lease.ErrHeld)
		}
		time.Sleep(10 * time.Minute)
		require.NoError(t, r.pay(t.Context(), sell))
		synctest.Wait()

		late, err := reserve(t.Context(), a, "14/G")
		require.NoError(t, err)
		time.Sleep(16 * time.Minute)
		require.ErrorIs(t, late.pay(t.Context(), sell), lease.ErrLapsed)
		_, err = reserve(t.Context(), a, "14/G")
		require.NoError(t, err, "its name is free on this node, too")
		require.Equal(t, 1, sold)
		_, err = reserve(t.Context(), b, "14/F")
		require.NoError(t, err)
	})
}

// session is of a user who is logged in: on one node at a time, and for as long as it is used.
type session struct {
	lease *lease.Handle
	term  lease.Term
}

// logIn begins a session, which ends a quarter of an hour after its last request.
func logIn(ctx context.Context, k *lease.Keeper, user string, ended func(user string, why error)) (*session, error) {
	name, err := lease.Name("session", user)
	if err != nil {
		return nil, err
	}
	l, err := k.Lease(name, lease.WithTTL(15*time.Minute), lease.WithRenewal(lease.RenewOnActivity()))
	if err != nil {
		return nil, err
	}
	l.OnLost(func(loss lease.Loss) {
		ended(user, loss.Reason) // lease.ErrLapsed: it was not used
		_ = l.Close(context.WithoutCancel(ctx))
	})
	term, err := l.AcquireTerm(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return &session{l, term}, nil
}

// request is one from the user.
func (s *session) request(do func(ctx context.Context) error) error {
	if !s.term.CheckAlive() {
		return context.Cause(s.term.Context())
	}
	s.lease.Touch() // asks the store once for many
	return do(s.term.Context())
}

func TestRecipeSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := recipeKeeper(t, memory.New(), "a")
		over := make(chan error, 1)
		s, err := logIn(t.Context(), k, "ann@example.org", func(_ string, why error) { over <- why })
		require.NoError(t, err)
		for range 24 { // a day, with a request every ten minutes
			for range 6 {
				time.Sleep(10 * time.Minute)
				require.NoError(t, s.request(func(ctx context.Context) error { return ctx.Err() }))
			}
		}
		at := time.Now()
		require.ErrorIs(t, <-over, lease.ErrLapsed)
		require.LessOrEqual(t, time.Since(at), 15*time.Minute)
		require.Error(t, s.request(func(context.Context) error { t.Error("after its end"); return nil }))
		synctest.Wait()
		_, err = logIn(t.Context(), k, "ann@example.org", func(string, error) {})
		require.NoError(t, err, "again")
	})
}

// tenant runs the jobs of a tenant while this node has the tenant, which is the master lease: each
// under a lease of its own, that never outlives it.
func tenant(ctx context.Context, k *lease.Keeper, id string, jobs map[string]func(context.Context, lease.Term) error) error {
	name, err := lease.Name("tenant", id)
	if err != nil {
		return err
	}
	master, err := k.Lease(name)
	if err != nil {
		return err
	}
	defer master.Close(context.WithoutCancel(ctx))
	return lease.Run(ctx, master, func(ctx context.Context, _ lease.Term) error {
		var running sync.WaitGroup
		failed := make(chan error, len(jobs))
		for job, run := range jobs {
			running.Go(func() { failed <- under(ctx, k, master, name+"/"+job, run) })
		}
		running.Wait() // children end before their parent is released
		close(failed)
		var errs []error
		for err := range failed {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// under runs a job under a lease that hangs on master.
func under(ctx context.Context, k *lease.Keeper, master *lease.Handle, name string, run func(context.Context, lease.Term) error) error {
	child, err := k.Lease(name, lease.WithParent(master))
	if err != nil {
		return err
	}
	defer child.Close(context.WithoutCancel(ctx))
	return lease.Run(ctx, child, run)
}

func TestRecipeMasterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		link := faultstore.Wrap(store)
		a, b := recipeKeeper(t, link, "a"), recipeKeeper(t, store, "b")
		var mu sync.Mutex
		ran := map[string][]string{} // nodes by job
		running := map[string]string{}
		job := func(node, name string) func(context.Context, lease.Term) error {
			return func(ctx context.Context, term lease.Term) error {
				mu.Lock()
				if other, ok := running[name]; ok {
					t.Errorf("%s runs on %s and %s", name, other, node)
				}
				running[name] = node
				ran[name] = append(ran[name], node)
				mu.Unlock()
				<-ctx.Done()
				if term.CheckAlive() && node == "a" {
					t.Error("its context is done while it is trusted")
				}
				mu.Lock()
				delete(running, name)
				mu.Unlock()
				return nil
			}
		}
		jobs := func(node string) map[string]func(context.Context, lease.Term) error {
			return map[string]func(context.Context, lease.Term) error{"mail": job(node, "mail"), "index": job(node, "index")}
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- tenant(t.Context(), a, "7", jobs("a")) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { second <- tenant(ctx, b, "7", jobs("b")) }()
		time.Sleep(time.Minute)
		link.Partition()
		time.Sleep(time.Minute)
		mu.Lock()
		require.Equal(t, map[string][]string{"mail": {"a", "b"}, "index": {"a", "b"}}, ran)
		require.Equal(t, map[string]string{"mail": "b", "index": "b"}, running)
		mu.Unlock()
		link.Heal()
		require.ErrorIs(t, <-first, lease.ErrExpired)
		cancel()
		require.NoError(t, <-second)
		_, err := b.Get(t.Context(), "tenant/7")
		require.ErrorIs(t, err, lease.ErrNotHeld)
	})
}
