package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// Two nodes want to run one job; the resource it writes to is fenced.
func Example() {
	ctx := context.Background()
	store := memory.New()          // or etcd: whatever all nodes reach
	resource := lease.NewFence(0)  // beside the data, which keeps the highest token
	release := make(chan struct{}) // ends the first node's work
	running := make(chan lease.Token)

	node := func(id string) (*lease.Keeper, *lease.Handle) {
		keeper, err := lease.NewKeeper(store, lease.Config{ID: id, TTL: 3 * time.Second})
		if err != nil {
			panic(err)
		}
		job, err := keeper.Lease("job/report")
		if err != nil {
			panic(err)
		}
		return keeper, job
	}
	one, job1 := node("one")
	two, job2 := node("two")
	defer one.Close(ctx)
	defer two.Close(ctx)

	done := make(chan error, 1)
	go func() {
		done <- lease.Run(ctx, job1, func(ctx context.Context, term lease.Term) error {
			running <- term.Token()
			select { // the work; ctx is done if the lease is lost
			case <-release:
				return resource.Do(term.Token(), func() error { fmt.Println("one writes"); return nil })
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	stale := <-running
	won, err := job2.Acquire(ctx)
	fmt.Println("two wins while one works:", won, err)
	close(release)
	fmt.Println("one is done:", <-done)

	err = lease.Run(ctx, job2, func(ctx context.Context, term lease.Term) error {
		return resource.Do(term.Token(), func() error { fmt.Println("two writes"); return nil })
	})
	fmt.Println("two is done:", err)
	err = resource.Do(stale, func() error { return nil })
	fmt.Println("a late write of one is refused:", errors.Is(err, lease.ErrStale))
	// Output:
	// two wins while one works: false <nil>
	// one writes
	// one is done: <nil>
	// two writes
	// two is done: <nil>
	// a late write of one is refused: true
}
