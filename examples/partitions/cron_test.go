package main

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Of two nodes one runs the cron. When it stops while a job runs, the other begins behind that job.
func TestRobfigOnOneNode(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		node := func(id string) func() {
			return start(t, s, id, func(ctx context.Context, k *lease.Keeper) error {
				l, err := k.Lease("cron")
				if err != nil {
					return err
				}
				run := h.note(id, 3*time.Second)
				return onOneNode(ctx, l, job{"@every 10s", func(context.Context, lease.Token) { run() }})
			})
		}
		stopA := node("a")
		time.Sleep(time.Second)
		node("b")
		time.Sleep(20 * time.Second) // 21 s: the run of second 20 goes on
		stopA()
		require.Equal(t, 23*time.Second, time.Since(h.began), "it waits for that run")
		time.Sleep(31 * time.Second)
		require.Equal(t, []string{"a 10s", "a 20s", "b 33s", "b 43s", "b 53s"}, h.all())
	})
}

// Each job runs on one node, and each node has its part of them.
func TestJobsAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		node := func(id string) func() {
			jobs := map[string]job{}
			for _, name := range []string{"w", "x", "y", "z"} {
				run := h.note(name+" on "+id, 0)
				jobs[name] = job{"@every 10s", func(context.Context, lease.Token) { run() }}
			}
			return start(t, s, id, member(spread(jobs)))
		}
		stopA := node("a")
		node("b")
		time.Sleep(15 * time.Second)
		first := h.take()
		require.Len(t, first, 4)
		stopA()
		time.Sleep(10 * time.Second)
		require.ElementsMatch(t, []string{"w on b", "x on b", "y on b", "z on b"}, h.take())
		onA := 0
		for _, run := range first {
			if run[len(run)-1] == 'a' {
				onA++
			}
		}
		require.Equal(t, 2, onA, first)
	})
}

// late is a schedule of a node whose clock is behind.
type late struct {
	cron.Schedule
	by time.Duration
}

func (l late) Next(t time.Time) time.Time { return l.Schedule.Next(t.Add(-l.by)).Add(l.by) }

// Every node has the job in its cron, and the clock of one is behind. One node runs each slot,
// though its run is over when the other comes to the same slot; also when it stops between.
func TestRobfigSlots(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		minutes, err := cron.ParseStandard("* * * * *")
		require.NoError(t, err)
		node := func(id string, behind time.Duration) func() {
			return start(t, s, id, func(ctx context.Context, k *lease.Keeper) error {
				once, err := newSlots(s, k, 54*time.Second)
				if err != nil {
					return err
				}
				c := cron.New(cron.WithChain(once.once("report")))
				c.Schedule(late{minutes, behind}, cron.FuncJob(h.note(id, time.Second)))
				c.Start()
				<-ctx.Done()
				<-c.Stop().Done()
				return nil
			})
		}
		stopA := node("a", 0)
		node("b", 5*time.Second)
		time.Sleep(182 * time.Second) // a has run the third slot, and b has not come to it
		stopA()
		time.Sleep(125 * time.Second)
		require.Equal(t, []string{"b 5s", "a 1m0s", "a 2m0s", "a 3m0s", "b 4m5s", "b 5m5s"}, h.all())
	})
}

// A slot that another node runs is no news; one that the store has not given is.
func TestASlotThatIsMissedIsLogged(t *testing.T) {
	var out strings.Builder
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	store := memory.New()
	k, err := lease.NewKeeper(store, lease.Config{ID: "a", Logger: zap.NewNop()})
	require.NoError(t, err)
	s, err := newSlots(store, k, time.Minute)
	require.NoError(t, err)
	runs := 0
	job := s.once("report")(cron.FuncJob(func() { runs++ }))
	job.Run()
	job.Run() // in the same slot
	require.Empty(t, out.String())
	require.NoError(t, k.Close(t.Context()))
	job.Run()
	require.Equal(t, 1, runs)
	require.Contains(t, out.String(), "report misses a slot here: ")
}

// The timers of gocron's nodes are apart by as much as their starts. One run to a slot, though a run
// is over long before the other node comes (gocron#841); also when the node that ran it stops.
func TestGocronLocker(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		node := func(id string) func() {
			return start(t, s, id, func(ctx context.Context, k *lease.Keeper) error {
				locker, err := newSlots(s, k, 9*time.Second)
				if err != nil {
					return err
				}
				return runGocron(ctx, gocron.WithDistributedLocker(locker), gocron.DurationJob(10*time.Second), h.note(id, time.Millisecond))
			})
		}
		stopA := node("a")
		time.Sleep(7 * time.Second)
		node("b")
		time.Sleep(25 * time.Second) // 32 s
		stopA()
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"a 10s", "a 20s", "a 30s", "b 47s", "b 57s"}, h.all())
	})
}

// A run that goes on when the next slot comes keeps that from beginning, on all nodes.
func TestRunsDoNotOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		node := func(id string) {
			start(t, s, id, func(ctx context.Context, k *lease.Keeper) error {
				once, err := newSlots(s, k, 9*time.Second)
				if err != nil {
					return err
				}
				return runCron(ctx, "@every 10s", h.note(id, 25*time.Second), cron.WithChain(once.once("report")))
			})
		}
		node("a")
		time.Sleep(time.Second)
		node("b")
		time.Sleep(58 * time.Second)
		require.Equal(t, []string{"a 10s", "a 40s"}, h.all(), "the first until 35 s")
	})
}

// Of two schedulers the leader's runs the jobs, and the other's when the leader has stopped.
func TestGocronElector(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, h *history) {
		node := func(id string) func() {
			return start(t, s, id, func(ctx context.Context, k *lease.Keeper) error {
				e, stop, err := newElector(ctx, k)
				if err != nil {
					return err
				}
				defer stop()
				return runGocron(ctx, gocron.WithDistributedElector(e), gocron.DurationJob(10*time.Second), h.note(id, time.Second))
			})
		}
		stopA := node("a")
		time.Sleep(time.Second)
		node("b")
		time.Sleep(24 * time.Second) // 25 s
		stopA()
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a 10s", "a 20s", "b 31s", "b 41s"}, h.all())
	})
}

// The leader's Keeper may close before its scheduler is shut down, whose jobs go on: no other leads
// until stop.
func TestGocronElectorOfAKeeperThatCloses(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store, _ *history) {
		var electors []elector
		var keepers []*lease.Keeper
		var stops []func()
		for _, id := range []string{"a", "b"} {
			k, err := lease.NewKeeper(s, lease.Config{ID: id, Logger: zap.NewNop()})
			require.NoError(t, err)
			e, stop, err := newElector(t.Context(), k)
			require.NoError(t, err)
			time.Sleep(time.Second)
			electors, keepers, stops = append(electors, e), append(keepers, k), append(stops, stop)
		}
		require.NoError(t, electors[0].IsLeader(t.Context()))
		closed := make(chan error, 1)
		go func() { closed <- keepers[0].Close(context.Background()) }()
		time.Sleep(30 * time.Second) // a job goes on
		for _, e := range electors {
			require.ErrorIs(t, e.IsLeader(t.Context()), lease.ErrNotHeld)
		}
		stops[0]()
		require.NoError(t, <-closed)
		time.Sleep(time.Second)
		require.NoError(t, electors[1].IsLeader(t.Context()))
		stops[1]()
		require.NoError(t, keepers[1].Close(context.Background()))
	})
}
