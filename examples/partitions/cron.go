package main

import (
	"context"
	"errors"
	"log"
	"maps"
	"slices"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/partition"
)

// job is run when its spec says so; what it writes bears the token.
type job struct {
	spec string
	run  func(ctx context.Context, token lease.Token)
}

// runCron runs f until ctx is done, and waits for the run that goes on then.
func runCron(ctx context.Context, spec string, f func(), opts ...cron.Option) error {
	c := cron.New(opts...)
	if _, err := c.AddFunc(spec, f); err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// onOneNode runs a job on one node of all, and on another when that ends.
func onOneNode(ctx context.Context, l lease.Lease, j job) error {
	return lease.RunForever(ctx, l, func(ctx context.Context, t lease.Term) error {
		return runCron(ctx, j.spec, func() { j.run(ctx, t.Token()) })
	})
}

// spread runs each job on one node, and has each node run its part of the jobs.
func spread(jobs map[string]job) partition.Config {
	return partition.Config{Name: "cron", Keys: slices.Sorted(maps.Keys(jobs)), Own: func(ctx context.Context, o partition.Owned) error {
		j := jobs[o.Key]
		return runCron(ctx, j.spec, func() { j.run(ctx, o.Token()) })
	}}
}

// once wraps a job that every node has in its cron: the first that takes a slot runs it.
func (s *slots) once(name string) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx := context.Background()
			l, err := s.Lock(ctx, name)
			if errors.Is(err, lease.ErrHeld) {
				return // another node runs it
			}
			if err != nil {
				log.Printf("%s misses a slot here: %v", name, err)
				return
			}
			defer l.Unlock(ctx)
			j.Run()
		})
	}
}
