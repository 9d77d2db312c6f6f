package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store"
)

// elector is a gocron.Elector: one scheduler of all runs the jobs.
type elector struct{ leads *lease.Handle }

// newElector campaigns until stop, for which the Keeper's Close waits. Shut the scheduler down first.
func newElector(ctx context.Context, keeper *lease.Keeper) (e elector, stop func(), err error) {
	l, err := keeper.Lease("gocron/leader")
	if err != nil {
		return e, nil, err
	}
	campaign, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		_ = lease.RunForever(campaign, l, func(ctx context.Context, _ lease.Term) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), lease.ErrClosed) {
				<-campaign.Done() // jobs may go on while the Keeper closes, as a Node's does at a signal
			}
			return nil
		})
	})
	return elector{l}, func() {
		cancel()
		running.Wait()
	}, nil
}

// IsLeader asks no server: it compares the clock with the end of the lease.
func (e elector) IsLeader(context.Context) error {
	if !e.leads.CheckAlive() {
		return lease.ErrNotHeld
	}
	return nil
}

// slots is a gocron.Locker: each slot of a job is run by one node, however short the run is, and
// however late the timers of other nodes are.
type slots struct {
	keeper *lease.Keeper
	taken  *provider.Provider
	keep   time.Duration
}

// newSlots returns slots that stay taken for keep: less than the time between two of a job, by as
// much as a run may begin late.
func newSlots(store store.Store, keeper *lease.Keeper, keep time.Duration) (*slots, error) {
	taken, err := provider.New(store)
	return &slots{keeper, taken, keep}, err
}

// Lock takes a slot of a job. The error is lease.ErrHeld if it is taken, or if the run of the one
// before goes on elsewhere; lease.ErrNameInUse if that goes on here.
func (s *slots) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	name, err := lease.Name("run", job)
	if err != nil {
		return nil, err
	}
	run, err := s.keeper.Lease(name) // until Unlock: no two runs of a job overlap
	if err != nil {
		return nil, err
	}
	if _, err := run.AcquireTerm(ctx); err != nil {
		return nil, errors.Join(err, run.Close(ctx))
	}
	slot, err := s.taken.Acquire(ctx, job, rand.Text(), s.keep) // never renewed, never released
	if err == nil && !slot.Acquired {
		err = fmt.Errorf("slot of %q: %w", job, lease.ErrHeld)
	}
	if err != nil {
		return nil, errors.Join(err, run.Close(ctx))
	}
	return unlock{run}, nil
}

type unlock struct{ run *lease.Handle }

// Unlock ends the run; its slot stays taken.
func (u unlock) Unlock(ctx context.Context) error { return u.run.Close(context.WithoutCancel(ctx)) }

// runGocron runs a job until ctx is done, and waits for the run that goes on then.
func runGocron(ctx context.Context, opt gocron.SchedulerOption, when gocron.JobDefinition, f func()) error {
	s, err := gocron.NewScheduler(opt)
	if err != nil {
		return err
	}
	_, err = s.NewJob(when, gocron.NewTask(f), gocron.WithName("report"))
	if err == nil {
		s.Start()
		<-ctx.Done()
	}
	return errors.Join(err, s.Shutdown())
}
