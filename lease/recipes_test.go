package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// twoNodes are keepers of two processes that reach one store.
func twoNodes() (one, two *lease.Keeper, end func()) {
	store := memory.New() // or etcd: whatever all nodes reach
	var keepers []*lease.Keeper
	for _, id := range []string{"one", "two"} {
		k, err := lease.NewKeeper(store, lease.Config{ID: id})
		if err != nil {
			panic(err)
		}
		keepers = append(keepers, k)
	}
	return keepers[0], keepers[1], func() {
		for _, k := range keepers {
			k.Close(context.Background())
		}
	}
}

// cleanUp is started on every node by the same timer, and runs on one.
func cleanUp(ctx context.Context, keeper *lease.Keeper, work func(context.Context, lease.Term) error) error {
	job, err := keeper.Lease("job/clean-up")
	if err != nil {
		return err // lease.ErrNameInUse: it runs on this node yet
	}
	defer job.Close(context.WithoutCancel(ctx))
	err = lease.TryRun(ctx, job, work)
	if held := (*lease.HeldError)(nil); errors.As(err, &held) {
		fmt.Println("skipped:", held.Record.Owner.ID, "does it")
		return nil
	}
	return err
}

func ExampleTryRun() {
	one, two, end := twoNodes()
	defer end()
	ctx := context.Background()
	err := cleanUp(ctx, one, func(ctx context.Context, _ lease.Term) error {
		fmt.Println("one cleans up")
		return cleanUp(ctx, two, func(context.Context, lease.Term) error { panic("beside the other") })
	})
	fmt.Println(err)
	// Output:
	// one cleans up
	// skipped: one does it
	// <nil>
}

// lead has one node of all lead, until ctx ends.
func lead(ctx context.Context, l lease.Lease, step func(context.Context, lease.Token) error) error {
	return lease.RunForever(ctx, l, func(ctx context.Context, t lease.Term) error {
		for ctx.Err() == nil { // done at a loss, too
			if err := step(ctx, t.Token()); err != nil {
				return err // logged; after a pause this node, or another, leads again
			}
		}
		return context.Cause(ctx)
	})
}

func ExampleRunForever() {
	one, _, end := twoNodes()
	defer end()
	job, err := one.Lease("leader/billing")
	if err != nil {
		panic(err)
	}
	steps := 0
	err = lead(context.Background(), job, func(_ context.Context, token lease.Token) error {
		if steps++; steps < 3 {
			fmt.Println("step", steps)
			return nil
		}
		return fmt.Errorf("no more to do: %w", lease.ErrStop)
	})
	fmt.Println(err)
	// Output:
	// step 1
	// step 2
	// no more to do: not to be run again
}

// migrated returns when the schema is up to date, by this process or another. m has the
// methods of a *goose.Provider, and R is its *goose.MigrationResult.
func migrated[R any](ctx context.Context, keeper *lease.Keeper, m interface {
	HasPending(ctx context.Context) (bool, error)
	Up(ctx context.Context) ([]R, error)
}) error {
	l, err := keeper.Lease("migrations/orders")
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx))
	done := func(ctx context.Context) (bool, error) {
		pending, err := m.HasPending(ctx)
		return !pending, err
	}
	return lease.Once(ctx, l, done, func(ctx context.Context, _ lease.Term) error {
		_, err := m.Up(ctx)
		return err
	})
}

// reached is done for a *migrate.Migrate of golang-migrate, and up what is run: want is the version
// that this program needs, and none is migrate.ErrNilVersion.
func reached(m interface {
	Version() (version uint, dirty bool, err error)
	Migrate(version uint) error
}, want uint, none error) (done func(context.Context) (bool, error), up func(context.Context, lease.Term) error) {
	done = func(context.Context) (bool, error) {
		version, dirty, err := m.Version()
		switch {
		case errors.Is(err, none):
			return false, nil // nothing was ever migrated
		case err != nil:
			return false, err
		case dirty: // who ran it died half way, and a person has to look
			return false, fmt.Errorf("the schema is dirty at version %d", version)
		}
		return version >= want, nil
	}
	return done, func(context.Context, lease.Term) error { return m.Migrate(want) }
}

// migrations stands for a library's.
type migrations struct {
	version uint
	dirty   bool
}

func (m *migrations) HasPending(context.Context) (bool, error) { return m.version < 2, nil }
func (m *migrations) Up(context.Context) ([]string, error)     { return nil, m.Migrate(2) }
func (m *migrations) Migrate(want uint) error {
	fmt.Println("to version", want)
	m.version = want
	return nil
}

var errNilVersion = errors.New("no migration")

func (m *migrations) Version() (uint, bool, error) {
	if m.version == 0 {
		return 0, false, errNilVersion
	}
	return m.version, m.dirty, nil
}

func ExampleOnce() {
	one, two, end := twoNodes()
	defer end()
	ctx, m := context.Background(), &migrations{}
	fmt.Println(migrated(ctx, one, m))
	fmt.Println(migrated(ctx, two, m)) // it is done: no lease is asked for

	l, err := two.Lease("migrations/orders")
	if err != nil {
		panic(err)
	}
	done, up := reached(m, 3, errNilVersion)
	fmt.Println(lease.Once(ctx, l, done, up))
	m.dirty = true
	fmt.Println(lease.Once(ctx, l, done, up) != nil)
	// Output:
	// to version 2
	// <nil>
	// <nil>
	// to version 3
	// <nil>
	// true
}

// imports runs an import when fewer than three of them run in the cluster.
func imports(ctx context.Context, pool *lease.Pool, file string, load func(context.Context, string) error) error {
	return pool.Run(ctx, func(ctx context.Context, slot int, t lease.Term) error {
		return load(ctx, fmt.Sprintf("staging_%d/%s", slot, file)) // no other has the slot
	})
}

func ExamplePool() {
	one, two, end := twoNodes()
	defer end()
	ctx := context.Background()
	here, err := lease.NewPool(one, "imports", 3)
	if err != nil {
		panic(err)
	}
	there, err := lease.NewPool(two, "imports", 3)
	if err != nil {
		panic(err)
	}
	var depth func(pool, next *lease.Pool, n int) error
	depth = func(pool, next *lease.Pool, n int) error { // works in a slot, and in another beside it
		return imports(ctx, pool, "a.csv", func(context.Context, string) error {
			if n == 3 {
				full := there.TryRun(ctx, func(context.Context, int, lease.Term) error { return nil })
				holders, err := there.Holders(ctx)
				fmt.Println(errors.Is(full, lease.ErrHeld), len(holders), err)
				return nil
			}
			return depth(next, pool, n+1)
		})
	}
	fmt.Println(depth(here, there, 1))
	// Output:
	// true 3 <nil>
	// <nil>
}

// route keeps to whom requests for a name are sent.
func route(keeper *lease.Keeper, name string, to func(address string)) (stop func(), err error) {
	return keeper.FollowHolder(name, func(h lease.Holding) {
		switch h.State {
		case lease.NameHeld:
			to(h.Record.Owner.Address)
		case lease.NameFree:
			to("") // requests wait
		case lease.HolderUnknown:
			// The store does not answer. The one that was told last may hold it yet: it refuses what
			// it is not to take, as its CheckAlive tells.
		}
	})
}

func ExampleKeeper_FollowHolder() {
	store := memory.New()
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "one", Address: "10.0.0.1:8080"})
	if err != nil {
		panic(err)
	}
	defer keeper.Close(context.Background())
	told := make(chan string, 10)
	stop, err := route(keeper, "leader/billing", func(address string) { told <- address })
	if err != nil {
		panic(err)
	}
	defer stop()
	fmt.Printf("%q\n", <-told)
	leader, err := keeper.Lease("leader/billing", lease.WithTTL(5*time.Second))
	if err != nil {
		panic(err)
	}
	if _, err := leader.Acquire(context.Background()); err != nil {
		panic(err)
	}
	fmt.Printf("%q\n", <-told)
	fmt.Println(leader.Release(context.Background()))
	fmt.Printf("%q\n", <-told)
	// Output:
	// ""
	// "10.0.0.1:8080"
	// <nil>
	// ""
}
