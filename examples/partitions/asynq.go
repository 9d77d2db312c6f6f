package main

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lease"
)

// scheduleTasks runs asynq's scheduler on one node of all, and on another when that ends. One that
// was shut down can't be started again, so each term has its own.
func scheduleTasks(
	ctx context.Context, l lease.Lease, redis asynq.RedisConnOpt, opts *asynq.SchedulerOpts, register func(*asynq.Scheduler) error,
) error {
	return lease.RunForever(ctx, l, func(ctx context.Context, _ lease.Term) error {
		s := asynq.NewScheduler(redis, opts)
		err := register(s)
		if err == nil {
			err = s.Start()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", lease.ErrStop, err) // it would fail on other nodes, too
		}
		<-ctx.Done()
		s.Shutdown() // waits for the task that it enqueues
		return nil
	})
}
