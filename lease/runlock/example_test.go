package runlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/runlock"
)

// hooks are those of a workflow engine, around what it does to a run: next does it.
type hooks struct{ locks *runlock.Locks }

func (h hooks) aroundResume(ctx context.Context, workflow, run string, next func(context.Context) error) error {
	return h.alone(ctx, workflow, run, next)
}

func (h hooks) aroundRestart(ctx context.Context, workflow, run string, next func(context.Context) error) error {
	return h.alone(ctx, workflow, run, next) // next resumes: that is in the same lock
}

func (h hooks) alone(ctx context.Context, workflow, run string, next func(context.Context) error) error {
	err := h.locks.Around(ctx, workflow, run, func(ctx context.Context, _ lease.Term) error {
		return next(ctx) // done when the lock is lost
	})
	if held := (*lease.HeldError)(nil); errors.As(err, &held) {
		fmt.Println("skipped:", held.Record.Owner.ID, "works on", run)
		return nil
	}
	return err
}

func Example() {
	ctx, store := context.Background(), memory.New()
	worker := func(id string) (hooks, func()) {
		keeper, err := lease.NewKeeper(store, lease.Config{ID: id})
		if err != nil {
			panic(err)
		}
		locks, err := runlock.New(keeper)
		if err != nil {
			panic(err)
		}
		return hooks{locks}, func() { keeper.Close(ctx) }
	}
	one, closeOne := worker("one")
	two, closeTwo := worker("two")
	defer closeOne()
	defer closeTwo()

	err := one.aroundRestart(ctx, "order", "run-42", func(ctx context.Context) error {
		fmt.Println("one restarts run-42")
		if err := two.aroundResume(ctx, "order", "run-42", func(context.Context) error { panic("beside the other") }); err != nil {
			return err
		}
		return one.aroundResume(ctx, "order", "run-42", func(context.Context) error {
			fmt.Println("one resumes run-42")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// one restarts run-42
	// skipped: one works on run-42
	// one resumes run-42
	// <nil>
}
