package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history is what ran, in order, by node and time since the test began.
type history struct {
	mu    sync.Mutex
	began time.Time
	runs  []string
}

// note returns a job that notes its run, which takes a while.
func (h *history) note(node string, takes time.Duration) func() {
	return func() {
		h.mu.Lock()
		h.runs = append(h.runs, fmt.Sprint(node, " ", time.Since(h.began).Round(time.Millisecond)))
		h.mu.Unlock()
		time.Sleep(takes)
	}
}

// bubble runs f on fake time.
func bubble(t *testing.T, f func(t *testing.T, s store.Store, h *history)) {
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(), &history{began: time.Now()}) })
}

// start runs a node's recipe; stop ends it in order, and waits for its end.
func start(t *testing.T, s store.Store, id string, f func(ctx context.Context, k *lease.Keeper) error, ttl ...time.Duration) (stop func()) {
	t.Helper()
	k, err := lease.NewKeeper(s, lease.Config{ID: id, TTL: slices.Max(append(ttl, 0)), Logger: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx, k) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) { // it waited for a lease
				require.NoError(t, err)
			}
			require.NoError(t, k.Close(context.Background()))
		})
	}
	t.Cleanup(stop)
	return stop
}

// member is a node's part in partitions.
func member(cfg partition.Config) func(ctx context.Context, k *lease.Keeper) error {
	return func(ctx context.Context, k *lease.Keeper) error {
		g, err := membership.Join(ctx, k, "g")
		if err != nil {
			return err
		}
		defer g.Leave(context.Background())
		return takePart(ctx, g, cfg)
	}
}

// all returns what ran.
func (h *history) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.runs)
}

// take returns who ran since the last call.
func (h *history) take() (who []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range h.runs {
		who = append(who, run[:strings.LastIndex(run, " ")])
	}
	h.runs = nil
	return who
}
