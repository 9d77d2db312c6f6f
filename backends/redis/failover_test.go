//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// TestAFailOver: a Store behind Sentinel goes on by itself with the new primary, by higher tokens,
// and so do Keepers and watches.
func TestAFailOver(t *testing.T) {
	t.Parallel()
	d := redistest.StartSentinels(t)
	p := prefix()
	quiet := redis.WithLogger(zap.NewNop())
	s := open(t, d.Client(t, func(o *goredis.UniversalOptions) { o.ReadTimeout = time.Second }), p, quiet)
	sess := session(t, s, "a", lasting)
	before := win(t, s, sess, "job")
	k := must(lease.NewKeeper(s, lease.Config{ID: "n", TTL: 10 * time.Second, Logger: zap.NewNop()}))(t)
	l := must(k.Lease("kept"))(t)
	require.True(t, must(l.Acquire(t.Context()))(t))
	next := synced(t, s)

	primary := must(d.Primary(t.Context()))(t)
	do(t, primary, "WAIT", 1, 1000)
	require.NoError(t, primary.Kill())
	must(d.Primary(t.Context(), primary))(t)
	var after store.Record
	eventually(t, "the new primary grants", func() bool {
		outs, err := s.Acquire(t.Context(), sess, []store.Claim{claim(fmt.Sprint("after/", numbers.Add(1)))})
		if err == nil && outs[0].OK {
			after = outs[0].Record
		}
		return err == nil
	})
	require.Greater(t, after.Token, before.Token)
	for {
		e := next()
		if e.err != nil { // it may have read what the replica had not
			next = synced(t, s)
			after = win(t, s, sess, "another")
			continue
		}
		if e.Record.Held() == after.Held() {
			break
		}
	}
	eventually(t, "the Keeper holds its lease", func() bool {
		won, err := l.Acquire(t.Context())
		return err == nil && won && l.CheckAlive()
	})
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, k.Close(t.Context()))

	// The former primary comes back as a replica, and is not asked.
	require.NoError(t, primary.Restart(t.Context()))
	require.Greater(t, works(t, s).Token, after.Token)
}

// TestManySessionsThatRanOut are swept by a Store that watches, while others are served.
func TestManySessionsThatRanOut(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := prefix()
	s := open(t, srv.Client(t), p)
	n := 20_000
	if tier.Nightly() {
		n = 600_000
	}
	for at := 0; at < n; at += 20_000 {
		do(t, srv, "EVAL", `for i = ARGV[1] + 1, ARGV[1] + ARGV[2] do
			local id = string.format('%.0f', 900000000 + i)
			redis.call('ZADD', KEYS[1], i, id)
			redis.call('HSET', KEYS[2], id, 'hf1 1000 gone gone ')
			redis.call('HSET', KEYS[3], 'job/' .. id, 'hf1 17 00000000000000aa ' .. id .. ' 1 ')
			redis.call('ZADD', KEYS[4], '0', id .. ' job/' .. id)
		end
		return 1`, 4, p+":ends", p+":session", p+":lease", p+":own", at, 20_000)
	}
	sess := session(t, s, "a", lasting)
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			for range s.Watch(ctx, store.Scope{Deletions: true}) {
			}
		}
	})
	worst := time.Duration(0)
	for do(t, srv, "ZCARD", p+":ends") != int64(1) {
		at := time.Now()
		require.NoError(t, must(s.Renew(t.Context(), []store.Session{sess}))(t)[0].Err)
		worst = max(worst, time.Since(at))
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	watching.Wait()
	t.Logf("%d sessions with a record each were swept in %v; the longest renewal meanwhile took %v", n, time.Since(began), worst)
	for _, key := range []string{"lease", "session"} {
		require.LessOrEqual(t, do(t, srv, "HLEN", p+":"+key), int64(1))
	}
	require.Zero(t, do(t, srv, "ZCARD", p+":own"))
}
