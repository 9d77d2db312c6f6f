package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A seat is reserved for a while: nothing renews it, and its end is no trouble.
func ExampleWithRenewal() {
	ctx := context.Background()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "box-office", TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer keeper.Close(ctx)

	seat, err := keeper.Lease("seat/12a",
		lease.WithTTL(500*time.Millisecond), // an hour, in earnest
		lease.WithRenewal(lease.RenewNever()))
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	seat.OnLost(func(loss lease.Loss) { ended <- loss.Reason })
	if won, err := seat.Acquire(ctx); !won || err != nil {
		panic(err)
	}
	fmt.Println("reserved")
	fmt.Println("on time:", errors.Is(<-ended, lease.ErrLapsed))
	// Output:
	// reserved
	// on time: true
}

// A loop that does its work in pieces renews its lease between them, when half of its time is over.
func ExampleHandle_ShouldRenew() {
	ctx := context.Background()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "worker"})
	if err != nil {
		panic(err)
	}
	defer keeper.Close(ctx)
	job, err := keeper.Lease("job", lease.WithTTL(time.Second), lease.WithRenewal(lease.RenewByHand()))
	if err != nil {
		panic(err)
	}
	if won, err := job.Acquire(ctx); !won || err != nil {
		panic(err)
	}
	for range 20 {
		time.Sleep(50 * time.Millisecond) // a piece of the work
		if !job.ShouldRenew(0.5) {
			continue
		}
		if err := job.Renew(ctx); err != nil {
			panic(err)
		}
	}
	fmt.Println("held after a second:", job.CheckAlive())
	if err := job.Release(ctx); err != nil {
		panic(err)
	}
	// Output: held after a second: true
}
