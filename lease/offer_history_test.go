package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var offers = simulate.New("lease-offers", 60, 1000)

// TestHistoriesOfOffers has a node give up an acquisition that never arrives, and offer to
// take the name over, while the store is slow; the host transfers it, and its Keeper may be
// closed meanwhile. Whenever all that happens, the name is never free before the offer's
// maker has it, and a Transfer whose error is not ErrUnknown was not applied.
func TestHistoriesOfOffers(t *testing.T) { play(t, offers, offerHistory) }

func offerHistory(t *testing.T, db *memory.Store, r *simulate.Random) {
	a, b := start(t, db, "a"), start(t, db, "b")
	la, lb := a.hold("job"), b.lease("job")
	b.hold("another") // so that it has a session
	look, leave, offer, transfer := upTo(r, time.Second), upTo(r, 2*time.Second), upTo(r, 2*time.Second), upTo(r, time.Second)
	releases, closes, closeAt, closeFor := r.IntN(2) == 0, r.IntN(2) == 0, upTo(r, time.Second), upTo(r, time.Second)
	hang := r.IntN(2) == 0
	kinds := []faultstore.Kind{faultstore.None, faultstore.ReplyLate, faultstore.ApplyThenFail, faultstore.Drop}
	a.rule(faultstore.Transfer, faultstore.Fault{Kind: kinds[r.IntN(len(kinds))], Delay: upTo(r, 2*time.Second), Hang: hang})
	var mu sync.Mutex
	left, invited := false, false
	b.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case c.Op == faultstore.Acquire && !left:
			return faultstore.Fault{Kind: faultstore.Drop, Hang: hang}
		case c.Op == faultstore.Get:
			return faultstore.Fault{Kind: faultstore.Delay, Delay: look}
		}
		return faultstore.Fault{}
	})
	var ops sync.WaitGroup
	defer ops.Wait()
	ops.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leave)
		defer cancel()
		_, err := lb.Acquire(ctx)
		mu.Lock()
		left = true
		gives := err != nil && releases && !invited // a Release ends what is asked for, an Adopt too
		mu.Unlock()
		if gives {
			_ = lb.Release(context.Background())
		}
	})
	time.Sleep(offer)
	mu.Lock()
	invited = true
	mu.Unlock()
	o, err := lb.Offer(t.Context())
	require.NoError(t, err)
	time.Sleep(transfer)
	freed := false
	_, err = start(t, db, "c").Watch("job", func(e store.Event) {
		mu.Lock()
		defer mu.Unlock()
		freed = freed || e.Kind == store.EventDelete
	})
	require.NoError(t, err)
	if closes {
		time.AfterFunc(closeAt, func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeFor)
			defer cancel()
			_ = a.Close(ctx)
		})
	}
	moved := func() bool {
		rec, ok := standing(t, db, "job")
		return ok && rec.Nonce == o.Nonce
	}
	err = la.Transfer(context.Background(), o)
	if err != nil {
		require.True(t, errors.Is(err, lease.ErrUnknown) || !moved(), "it was moved: %v", err)
		return
	}
	time.Sleep(upTo(r, time.Second))
	won, err := lb.Adopt(context.Background(), o)
	require.NoError(t, err)
	require.True(t, won)
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.False(t, freed, "the name was free, and anybody's to win")
}
