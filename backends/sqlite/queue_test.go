//go:build linux

package sqlite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// Writers that follow each other with microseconds between them leave renewals their turn: some 70 in
// 3 s. Where a wait looks every 4 ms, they get five at most.
func TestARenewalBesideAQueueOfWriters(t *testing.T) {
	ctx := t.Context()
	path := quickFile(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	db := users(t, path, "")
	end := time.Now().Add(3 * time.Second)
	var writers sync.WaitGroup
	var wrote [4]int
	for i := range wrote {
		writers.Go(func() {
			for time.Now().Before(end) {
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
				wrote[i]++
			}
		})
	}
	var worst, all time.Duration
	n := 0
	for time.Now().Before(end) {
		began := time.Now()
		_, err := s.Renew(context.Background(), []lease.Session{sess})
		require.NoError(t, err)
		took := time.Since(began)
		worst, all, n = max(worst, took), all+took, n+1
		time.Sleep(time.Millisecond)
	}
	writers.Wait()
	t.Logf("%d renewals, on average after %v, at worst %v; the writers wrote %v", n, all/time.Duration(n), worst, wrote)
	require.GreaterOrEqual(t, n, 15)
}
