//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/store"
)

type event struct {
	store.Event
	err error
}

// watch begins a watch; next waits for its next event, or its error.
func watch(tb testing.TB, s store.Watcher, of store.Scope) (next func() event, stop func()) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), soon)
	pull, end := iter.Pull2(s.Watch(ctx, of))
	stop = func() { cancel(); end() }
	tb.Cleanup(stop)
	return func() event {
		tb.Helper()
		e, err, ok := pull()
		require.True(tb, ok, "the watch is over")
		return event{e, err}
	}, stop
}

// synced begins a watch of nothing that stands.
func synced(t *testing.T, s store.Watcher) func() event {
	t.Helper()
	next, _ := watch(t, s, store.Scope{})
	for {
		e := next()
		require.NoError(t, e.err)
		if e.Kind == store.EventSynced {
			return next
		}
	}
}

func TestAnExpiryIsTold(t *testing.T) {
	t.Parallel()
	s, p := fresh(t)
	next := synced(t, s)
	sess := session(t, s, "a", 300*time.Millisecond)
	end := time.Now().Add(sess.TTL)
	r := win(t, s, sess, "job")
	require.Equal(t, r.Held(), next().Record.Held())
	gone := next()
	require.Equal(t, store.EventDelete, gone.Kind)
	require.Greater(t, gone.Revision, r.Token)
	require.False(t, time.Now().Before(end))
	require.Zero(t, do(t, server(t), "HLEN", p+":lease"))
}

// TestASnapshotOverManyPages: what is over is neither in it nor deleted after it, and changes
// meanwhile come once, in order.
func TestASnapshotOverManyPages(t *testing.T) {
	t.Parallel()
	s, p := fresh(t)
	const size = 3000
	do(t, server(t), "EVAL", `for i = 1, ARGV[1] do
			redis.call('HSET', KEYS[3], 'over/' .. i, 'hf1 17 00000000000000aa 900001 1 ')
			redis.call('ZADD', KEYS[4], '0', '900001 over/' .. i)
		end
		redis.call('ZADD', KEYS[1], '1', 900001)
		return redis.call('HSET', KEYS[2], 900001, 'hf1 1000 gone gone ')`, 4, p+":ends", p+":session", p+":lease", p+":own", size)
	sess := session(t, s, "a", lasting)
	held := map[string]store.Record{}
	for i := range size / 100 {
		var claims []store.Claim
		for k := range 100 {
			claims = append(claims, claim(fmt.Sprintf("stands/%d", 100*i+k)))
		}
		for _, out := range ask(t, s, sess, claims...) {
			held[out.Record.Name] = out.Record
		}
	}
	changes := 0
	standing := map[string]store.Token{}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for e, err := range s.Watch(ctx, store.Scope{}) {
		require.NoError(t, err)
		name := e.Record.Name
		switch e.Kind {
		case store.EventPut:
			require.Greater(t, e.Record.Token, standing[name], name)
			standing[name] = e.Record.Token
		case store.EventDelete:
			require.NotZero(t, standing[name], name)
			delete(standing, name)
		}
		if changes < 200 && e.Kind == store.EventPut && held[name].Token == e.Record.Token {
			changes++ // one that was yielded, and one that is perhaps still to come
			for _, n := range []string{name, fmt.Sprintf("stands/%d", (changes*7919)%size)} {
				if r := held[n]; changes%3 == 0 {
					must(s.Release(ctx, []store.Held{r.Held()}))(t)
				} else {
					out := ask(t, s, sess, store.Claim{Name: n, Nonce: 1, Supersedes: r.Token})[0]
					held[n] = out.Record
				}
			}
		}
		if e.Kind == store.EventSynced {
			win(t, s, sess, "the last")
		}
		if name == "the last" {
			break
		}
	}
	require.Equal(t, 200, changes)
	for r, err := range s.List(t.Context(), store.Query{}) {
		require.NoError(t, err)
		require.Equal(t, r.Token, standing[r.Name], r.Name)
		delete(standing, r.Name)
	}
	require.Empty(t, standing)
}

// TestManyWatchesOfAStore have one connection together: a pool of two is enough.
func TestManyWatchesOfAStore(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.Client(t, func(o *goredis.UniversalOptions) { o.PoolSize, o.PoolTimeout = 2, time.Second }), prefix())
	var nexts []func() event
	for range 20 {
		nexts = append(nexts, synced(t, s))
	}
	sess := session(t, s, "a", lasting)
	for i := range 20 {
		r := win(t, s, sess, fmt.Sprint(i))
		for _, next := range nexts {
			require.Equal(t, r.Held(), next().Record.Held())
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.Client(t), prefix(), redis.WithLogger(zap.NewNop()))
	next, _ := watch(t, s, store.Scope{Progress: 100 * time.Millisecond})
	require.Equal(t, store.EventSynced, next().Kind)
	for range 5 {
		require.Equal(t, store.EventProgress, next().Kind)
	}
	require.NoError(t, srv.Kill())
	for {
		e := next()
		if e.err != nil {
			break
		}
		require.Equal(t, store.EventProgress, e.Kind)
	}
}

// TestWatchesThatAreLost: where changes are missing, the watch ends with an error, and a new one
// works.
func TestWatchesThatAreLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for what, damage := range map[string]func(p string, s *redis.Store, sess store.Session){
		"all data": func(string, *redis.Store, store.Session) { do(t, srv, "FLUSHALL") },
		"the last change, and others come": func(p string, s *redis.Store, sess store.Session) {
			before := dump(t, srv, p)
			win(t, s, sess, "lost")
			restore(t, srv, p, before)
			other := open(t, srv.Client(t), p)
			win(t, other, session(t, other, "b", lasting), "another")
		},
		"the last change": func(p string, s *redis.Store, sess store.Session) {
			before := dump(t, srv, p)
			win(t, s, sess, "lost")
			restore(t, srv, p, before)
		},
		"the stream": func(p string, s *redis.Store, sess store.Session) {
			do(t, srv, "EVAL", `redis.call('DEL', KEYS[2]) return redis.call('INCR', KEYS[1])`, 2, p+":rev", p+":change")
		},
		"what was trimmed": func(p string, s *redis.Store, sess store.Session) {
			do(t, srv, "EVAL", `local rev = redis.call('INCR', KEYS[1])
				redis.call('INCR', KEYS[1])
				return redis.call('XADD', KEYS[2], string.format('%.0f-0', rev + 1), 'prev', string.format('%.0f', rev), 'kind', 'gone', 'name', 'x')`,
				2, p+":rev", p+":change")
		},
		"another program's entry": func(p string, s *redis.Store, sess store.Session) {
			do(t, srv, "XADD", p+":change", "*", "by", "hand")
		},
	} {
		p := prefix()
		s := open(t, srv.Client(t), p)
		sess := session(t, s, "a", lasting)
		win(t, s, sess, "first")
		next := synced(t, s)
		damage(p, s, sess)
		for {
			e := next()
			if e.err != nil {
				require.ErrorContains(t, e.err, "the watch is lost", what)
				break
			}
		}
		if what != "another program's entry" {
			synced(t, s)
			works(t, s)
		}
	}
}

func restore(t *testing.T, srv *redistest.Server, p string, of map[string]any) {
	t.Helper()
	args := []any{"EVAL", `for i = 1, #KEYS do redis.call('RESTORE', KEYS[i], 0, ARGV[i], 'REPLACE') end return 1`, len(of)}
	var values []any
	for key, value := range of {
		args, values = append(args, p+":"+key), append(values, value)
	}
	do(t, srv, append(args, values...)...)
}

// TestTheServerIsRestarted: a watch goes on where nothing was lost.
func TestTheServerIsRestarted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithAOF())
	s := open(t, srv.Client(t), prefix(), redis.WithLogger(zap.NewNop()))
	sess := session(t, s, "a", lasting)
	next := synced(t, s)
	require.NoError(t, srv.Restart(t.Context()))
	var r store.Record
	eventually(t, "the server answers", func() bool {
		outs, err := s.Acquire(t.Context(), sess, []store.Claim{claim(fmt.Sprint("job/", numbers.Add(1)))})
		if err == nil {
			r = outs[0].Record
		}
		return err == nil
	})
	require.Equal(t, r.Held(), next().Record.Held())
}
