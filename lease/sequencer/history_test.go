package sequencer_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
)

var (
	seed      = flag.Uint64("sequencer.seed", 0, "play one history again")
	histories = flag.Int("sequencer.histories", 300, "how many")
)

// TestHistories plays callers of several tokens against Fences, with a store that moves on, is slow
// and fails, and with room for few names. Of each name: no work of two tokens overlaps; of a later
// one none comes before one of an earlier; and no caller stays.
func TestHistories(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = nil
		for range *histories {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, s := range seeds {
		synctest.Test(t, func(t *testing.T) { play(t, s) })
		if t.Failed() {
			t.Fatalf("replay: go test ./lease/sequencer -run TestHistories -sequencer.seed=%d", s)
		}
	}
}

// world is the store, and what ran.
type world struct {
	mu      sync.Mutex
	rng     *rand.Rand
	tokens  map[string]lease.Token // that the store has
	running map[string]map[lease.Token]int
	highest map[string]lease.Token // of those that ran
	ran     int
}

func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// Get is the store's, read at one moment and told at another.
func (w *world) Get(ctx context.Context, name string) (lease.Record, error) {
	if w.draw(10) == 0 {
		return lease.Record{}, errors.New("away")
	}
	w.mu.Lock()
	token := w.tokens[name]
	w.mu.Unlock()
	time.Sleep(time.Duration(w.draw(300)) * time.Millisecond)
	if w.draw(10) == 0 {
		return lease.Record{}, lease.ErrNotHeld
	}
	return lease.Record{Name: name, Token: token}, ctx.Err()
}

func (w *world) begin(t *testing.T, s sequencer.Sequencer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Token < w.highest[s.Name] {
		t.Errorf("%v runs after token %d", s, w.highest[s.Name])
	}
	w.highest[s.Name] = s.Token
	if w.running[s.Name] == nil {
		w.running[s.Name] = map[lease.Token]int{}
	}
	w.running[s.Name][s.Token]++
	if len(w.running[s.Name]) > 1 {
		t.Errorf("%v runs beside others: %v", s, w.running[s.Name])
	}
	w.ran++
}

func (w *world) end(s sequencer.Sequencer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[s.Name][s.Token]--; w.running[s.Name][s.Token] == 0 {
		delete(w.running[s.Name], s.Token)
	}
}

func play(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rand.New(rand.NewPCG(seed, 2)), tokens: map[string]lease.Token{}, running: map[string]map[lease.Token]int{}, highest: map[string]lease.Token{}}
	names := []string{"a", "b", "c"}
	for _, n := range names {
		w.tokens[n] = 1
	}
	opts := []sequencer.Option{sequencer.WithPatience(2 * time.Second)}
	byStore := rng.IntN(2) == 0
	if byStore {
		opts = append(opts, sequencer.WithReader(w), sequencer.WithLimit(2))
	}
	f := newFences(t, opts...)
	var callers sync.WaitGroup
	for range 20 + rng.IntN(60) {
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		name := names[rng.IntN(len(names))]
		w.mu.Lock()
		if rng.IntN(4) == 0 {
			w.tokens[name] += lease.Token(1 + rng.IntN(2))
		}
		token := w.tokens[name]
		w.mu.Unlock()
		switch rng.IntN(6) {
		case 0:
			token = lease.Token(max(1, int(token)-rng.IntN(3)))
		case 1:
			if byStore { // made up
				token += 5
			}
		}
		s, works, gives := seq(name, token), time.Duration(rng.IntN(900))*time.Millisecond, time.Duration(rng.IntN(3000))*time.Millisecond
		deaf := rng.IntN(3) == 0
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), gives)
			defer cancel()
			err := f.Do(ctx, s, func(ctx context.Context) error {
				w.begin(t, s)
				defer w.end(s)
				if deaf {
					time.Sleep(works)
					return nil
				}
				select {
				case <-time.After(works):
				case <-ctx.Done():
				}
				return nil
			})
			switch {
			case err == nil, errors.Is(err, lease.ErrStale), errors.Is(err, sequencer.ErrBusy), errors.Is(err, context.DeadlineExceeded):
			case byStore && (errors.Is(err, lease.ErrUnknown) || errors.Is(err, sequencer.ErrFull)):
			default:
				t.Errorf("%v: %v", s, err)
			}
		})
	}
	callers.Wait()
	require.Positive(t, w.ran)
	for name := range f.Marks() {
		require.True(t, f.Forget(name), "nothing is left in use")
	}
	require.Empty(t, f.Marks())
}
