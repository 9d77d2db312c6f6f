package deletioncost_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-go/holdfast/contrib/kubernetes/deletioncost"
	"github.com/holdfast-go/holdfast/lease"
)

// The actor library's throttle of dead letters ends by itself, after a while.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// pods notes patches, with their times.
type pods struct {
	coreclient.PodInterface
	mu      sync.Mutex
	patches []string
	fail    func(ctx context.Context) error
}

func (p *pods) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ meta.PatchOptions, of ...string,
) (*core.Pod, error) {
	p.mu.Lock()
	p.patches = append(p.patches, name+" "+strings.Join(of, " ")+" "+string(kind)+" "+string(data))
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		return nil, fail(ctx)
	}
	return &core.Pod{}, nil
}

func (p *pods) since() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	patches := p.patches
	p.patches = nil
	return patches
}

func (p *pods) fails(f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func patch(cost string) []string {
	return []string{`app-1 status application/merge-patch+json {"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"` + cost + `"}}}`}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pods{}
		var held atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- deletioncost.Run(ctx, p, "app-1", func() int { return int(held.Load()) }) }()
		synctest.Wait()
		require.Equal(t, patch("0"), p.since(), "what a container before it has left")
		for _, c := range []struct {
			held  int
			wrote []string
		}{
			{0, nil},
			{1, patch("1")},
			{1, nil},
			{2, patch("2")},
			{100, patch("100")},
			{110, nil}, // a tenth
			{111, patch("111")},
			{100, nil},
			{99, patch("99")},
			{0, patch("0")},
			{-5, nil},
			{math.MaxInt, patch("2147483647")},
			{0, patch("0")},
		} {
			held.Store(int64(c.held))
			time.Sleep(59 * time.Second)
			require.Empty(t, p.since(), "once a minute")
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, c.wrote, p.since(), "%d", c.held)
		}

		// Failures are tried again, also after a request that hangs.
		p.fails(func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("no answer")
		})
		held.Store(7)
		time.Sleep(3*time.Minute + 30*time.Second)
		require.Len(t, p.since(), 3)
		p.fails(nil)
		time.Sleep(time.Minute)
		require.Equal(t, patch("7"), p.since())
		time.Sleep(time.Hour)
		require.Empty(t, p.since())
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestRefuses(t *testing.T) {
	held := func() int { return 0 }
	require.ErrorIs(t, deletioncost.Run(t.Context(), nil, "app-1", held), lease.ErrInvalid)
	require.ErrorIs(t, deletioncost.Run(t.Context(), &pods{}, "", held), lease.ErrInvalid)
	require.ErrorIs(t, deletioncost.Run(t.Context(), &pods{}, "app-1", nil), lease.ErrInvalid)
}
