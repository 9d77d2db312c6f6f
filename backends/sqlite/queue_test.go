//go:build linux

package sqlite

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// Writers that follow each other with microseconds between them leave renewals their turn: one comes
// behind some four transactions. Where a wait looks every 4 ms, it comes behind 15 to 60.
func TestARenewalBesideAQueueOfWriters(t *testing.T) {
	ctx := t.Context()
	path := quickFile(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	db := users(t, path, "")
	var writers sync.WaitGroup
	var wrote atomic.Int64
	enough := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				tx, err := db.BeginTx(ctx, nil)
				if err != nil || Guard(ctx, tx, of(mine)) != nil {
					t.Errorf("no transaction: %v", err)
					return
				}
				_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
				time.Sleep(10 * time.Millisecond)
				if err != nil || tx.Commit() != nil {
					t.Errorf("not written: %v", err)
					return
				}
				wrote.Add(1)
			}
		})
	}
	var worst, all time.Duration
	var behind []int64 // how many transactions each renewal came behind
	for range 30 {
		began, before := time.Now(), wrote.Load()
		_, err := s.Renew(context.Background(), []store.Session{sess})
		assert.NoError(t, err)
		took := time.Since(began)
		behind = append(behind, wrote.Load()-before)
		worst, all = max(worst, took), all+took
		time.Sleep(time.Millisecond)
	}
	close(enough)
	writers.Wait()
	slices.Sort(behind)
	t.Logf("renewals took %v on average, %v at worst; they came behind %v transactions", all/time.Duration(len(behind)), worst, behind)
	require.Less(t, behind[len(behind)/2], int64(8), "the middle one") // a busy machine delays some for long
}
