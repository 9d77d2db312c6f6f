//go:build unix

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/store"
)

func TestBadInput(t *testing.T) {
	client := func(o goredis.Options) *goredis.Client {
		o.Addr = "127.0.0.1:1"
		c := goredis.NewClient(&o)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	ring := goredis.NewRing(&goredis.RingOptions{})
	defer func() { require.NoError(t, ring.Close()) }()
	for says, c := range map[string]goredis.UniversalClient{
		"redis.New: client: invalid: <nil>, must be":          nil,
		"*redis.Client, must be":                              (*goredis.Client)(nil),
		"*redis.Ring, must be":                                ring,
		"PoolSize 1, must be at least 2":                      client(goredis.Options{PoolSize: 1}),
		"ReadTimeout 0s, must be at least 10ms":               client(goredis.Options{ReadTimeout: -1}),
		"ReadTimeout 1ms, must be at least 10ms: requests to": client(goredis.Options{ReadTimeout: time.Millisecond}),
	} {
		_, err := redis.New(t.Context(), c)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	c := client(goredis.Options{ReadTimeout: 3 * time.Second})
	for says, o := range map[string]redis.Option{
		"a nil Option":                        nil,
		`redis.WithPrefix: invalid: ""`:       redis.WithPrefix(""),
		`redis.WithPrefix: invalid: "app"`:    redis.WithPrefix("app"),
		`redis.WithPrefix: invalid: "{}"`:     redis.WithPrefix("{}"),
		`redis.WithPrefix: invalid: "a}{b}"`:  redis.WithPrefix("a}{b}"),
		`redis.WithPrefix: invalid: "{a b}"`:  redis.WithPrefix("{a b}"),
		`redis.WithPrefix: invalid: "{*}"`:    redis.WithPrefix("{*}"),
		"must be 3 to 128":                    redis.WithPrefix("{a}" + strings.Repeat("b", 126)),
		"0 replicas, must be 1 to 16":         redis.WithWait(0, time.Second),
		"-1 replicas, must be 1 to 16":        redis.WithWait(-7, 0),
		"17 replicas, must be 1 to 16":        redis.WithWait(17, time.Second),
		"timeout 0s, must be 1ms to 1.5s":     redis.WithWait(1, 0),
		"timeout 1.501s, must be 1ms to 1.5s": redis.WithWait(1, 1501*time.Millisecond),
	} {
		_, err := redis.New(t.Context(), c, o)
		require.ErrorIs(t, err, store.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	var none context.Context
	_, err := redis.New(none, c)
	require.ErrorIs(t, err, store.ErrInvalid)

	var zero redis.Store
	_, err = zero.Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrInvalid)
	for _, err := range zero.Watch(t.Context(), store.Scope{}) {
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	require.ErrorIs(t, zero.AcceptHistory(t.Context()), store.ErrInvalid)
	require.NoError(t, zero.Close())

	s, _ := fresh(t)
	for _, err := range []error{
		func() error { _, err := s.Get(none); return err }(),
		s.AcceptHistory(none),
		func() (err error) {
			for _, err = range s.Watch(none, store.Scope{}) {
			}
			return err
		}(),
	} {
		require.ErrorIs(t, err, store.ErrInvalid)
	}
}

// TestAServerThatIsNotReached is no error of New, and is checked with the first call that reaches
// it.
func TestAServerThatIsNotReached(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithConfig("maxmemory-policy allkeys-lru"))
	require.NoError(t, srv.Kill())
	s := open(t, srv.Client(t), prefix())
	_, err := s.Get(t.Context(), "a")
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrDenied)
	require.NoError(t, srv.Restart(t.Context()))
	eventually(t, "the server is refused", func() bool {
		_, err = s.Get(t.Context(), "a")
		return errors.Is(err, store.ErrDenied)
	})
	require.ErrorContains(t, err, "maxmemory-policy is allkeys-lru")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = redis.New(ctx, srv.Client(t))
	require.ErrorIs(t, err, context.Canceled)
}

// TestPoliciesOfEviction: those that take any key are refused, those that take keys with a TTL take
// none of ours.
func TestPoliciesOfEviction(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random"} {
		do(t, srv, "CONFIG", "SET", "maxmemory-policy", policy)
		_, err := redis.New(t.Context(), srv.Client(t))
		require.ErrorIs(t, err, store.ErrDenied)
		require.ErrorContains(t, err, policy)
	}
	for _, policy := range []string{"noeviction", "volatile-lru", "volatile-ttl", "volatile-random"} {
		do(t, srv, "CONFIG", "SET", "maxmemory-policy", policy)
		works(t, open(t, srv.Client(t), prefix()))
	}
}

// TestReplicas are refused, for reads as well, and by a Store that was opened before as something
// that passes.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := must(primary.NewReplica(t.Context()))(t)
	_, err := redis.New(t.Context(), replica.Client(t))
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "the server is a replica")

	s := open(t, primary.Client(t), prefix())
	held := win(t, s, session(t, s, "a", lasting), "job")
	do(t, primary, "REPLICAOF", "127.0.0.1", "1") // of none that could change its data
	_, err = s.Get(t.Context(), "job")
	require.ErrorContains(t, err, "READONLY")
	require.NotErrorIs(t, err, store.ErrDenied)
	for _, q := range []store.Query{{}, {Session: held.Session}} {
		for _, err := range s.List(t.Context(), q) {
			require.ErrorContains(t, err, "READONLY")
		}
	}
	do(t, primary, "REPLICAOF", "NO", "ONE")
	got := must(s.Get(t.Context(), "job"))(t)
	require.Equal(t, held.Held(), got[0].Held())
}

// TestAnOldServer says that it can't read the flags of scripts, as Redis 6 does.
func TestAnOldServer(t *testing.T) {
	t.Parallel()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					switch asked := strings.ToLower(string(buf[:n])); {
					case strings.Contains(asked, "evalsha"):
						fmt.Fprint(c, "-NOSCRIPT No matching script. Please use EVAL.\r\n")
					case strings.Contains(asked, "eval"):
						fmt.Fprint(c, "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n")
					default:
						fmt.Fprint(c, strings.Repeat("-ERR unknown command\r\n", strings.Count(asked, "*")))
					}
				}
			}()
		}
	}()
	c := goredis.NewClient(&goredis.Options{Addr: l.Addr().String(), DisableIdentity: true})
	_, err := redis.New(t.Context(), c)
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "Redis 7.0 or Valkey 7.2, or later, is needed")
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	<-done
}

// minimum is the least that a user needs; docs/redis.md has it.
var minimum = []any{"reset", "on", ">secret", "resetkeys", "~{acl}:*", "-@all", "+evalsha", "+eval", "+time", "+get", "+set",
	"+zadd", "+zcard", "+zrange", "+zrem", "+zscore", "+hdel", "+hget", "+hlen", "+hscan", "+hset", "+xadd", "+xlen", "+xread",
	"+info", "+wait"}

// TestRights: with the least, all works. What is missing is named, also when it goes missing later,
// and nothing of the call is applied.
func TestRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	user := func(o *goredis.UniversalOptions) { o.Username, o.Password = "app", "secret" }
	set := func(rules ...any) { do(t, srv, append([]any{"ACL", "SETUSER", "app"}, rules...)...) }
	_, err := redis.New(t.Context(), srv.Client(t, user), redis.WithPrefix("{acl}"))
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "the user or the password is wrong")

	set(minimum...)
	s := open(t, srv.Client(t, user), "{acl}", redis.WithWait(1, 10*time.Millisecond))
	_, err = s.OpenSession(t.Context(), store.Session{ID: 1 << 40, TTL: lasting, Owner: store.Owner{Incarnation: "a"}})
	require.NoError(t, err)
	s = open(t, srv.Client(t, user), "{acl}", redis.WithLogger(zap.NewNop()))
	works(t, s)
	next, stop := watch(t, s, store.Scope{})
	require.Equal(t, store.EventSynced, next().Kind)
	works(t, s)
	require.Equal(t, store.EventPut, next().Kind)
	stop()
	for range s.List(t.Context(), store.Query{Session: 1 << 40}) {
	}
	for _, rule := range minimum[6:] {
		command := rule.(string)[1:]
		set("-" + command)
		_, err := redis.New(t.Context(), srv.Client(t, user), redis.WithPrefix("{acl}"), redis.WithLogger(zap.NewNop()),
			redis.WithWait(1, 10*time.Millisecond))
		if command == "info" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, store.ErrDenied, command)
			require.ErrorContains(t, err, command)
		}
		set("+" + command)
	}
	core, logs := observer.New(zap.WarnLevel)
	set("-info")
	works(t, open(t, srv.Client(t, user), "{acl}", redis.WithLogger(zap.New(core))))
	require.Equal(t, 1, logs.FilterMessageSnippet("whether the server evicts leases").Len())
	set("-wait")
	works(t, open(t, srv.Client(t, user), "{acl}", redis.WithLogger(zap.NewNop())))

	_, err = redis.New(t.Context(), srv.Client(t, user), redis.WithPrefix("{other}"))
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "not with such keys as {other}:rev")

	a := session(t, s, "a", lasting)
	set("-evalsha")
	_, err = s.Acquire(t.Context(), a, []store.Claim{claim("later")})
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "evalsha")
	set("+evalsha")
	works(t, s)
	set("-hset")
	_, err = s.Acquire(t.Context(), a, []store.Claim{claim("later")})
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrDenied, "within a script it is not definite")
	_, err = s.Acquire(t.Context(), a, []store.Claim{claim("later")})
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "the user may not use hset")
	set("+hset")
	win(t, s, a, "later")
}

// TestKeysOfAnotherProgram: one of another type refuses each call before it has written anything.
func TestKeysOfAnotherProgram(t *testing.T) {
	t.Parallel()
	srv := server(t)
	for _, key := range []string{"rev", "ends", "session", "lease", "own", "change"} {
		s, p := fresh(t)
		sess := session(t, s, "a", lasting)
		held := win(t, s, sess, "job")
		do(t, srv, "DEL", p+":"+key)
		if key == "rev" {
			do(t, srv, "RPUSH", p+":"+key, "theirs")
		} else {
			do(t, srv, "SET", p+":"+key, "theirs")
		}
		before := dump(t, srv, p)
		_, err := s.Acquire(t.Context(), sess, []store.Claim{claim("other")})
		require.ErrorIs(t, err, store.ErrDenied, key)
		require.ErrorContains(t, err, "another program has one of such keys as "+p+":rev")
		_, err = s.Release(t.Context(), []store.Held{held.Held()})
		require.ErrorIs(t, err, store.ErrDenied)
		require.Equal(t, before, dump(t, srv, p), key)
	}
	for _, rev := range []string{"theirs", "1e300", "9223372036854775807"} {
		s, p := fresh(t)
		do(t, srv, "SET", p+":rev", rev)
		_, err := s.OpenSession(t.Context(), store.Session{ID: 1 << 40, TTL: lasting, Owner: store.Owner{Incarnation: "a"}})
		require.ErrorIs(t, err, store.ErrDenied, rev)
	}
	// A revision that was set back, below the stream's last.
	s, p := fresh(t)
	sess := session(t, s, "a", lasting)
	win(t, s, sess, "job")
	do(t, srv, "XADD", p+":change", "9000000000000000-0", "by", "hand")
	before := dump(t, srv, p)
	_, err := s.Acquire(t.Context(), sess, []store.Claim{claim("other")})
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "delete both")
	require.Equal(t, before, dump(t, srv, p))
	do(t, srv, "DEL", p+":change", p+":rev")
	win(t, s, sess, "other")
}

// dump is all that stands under a prefix.
func dump(t *testing.T, srv *redistest.Server, p string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, key := range []string{"rev", "ends", "session", "lease", "own", "change"} {
		if do(t, srv, "EXISTS", p+":"+key) == int64(1) {
			all[key] = do(t, srv, "DUMP", p+":"+key)
		}
	}
	return all
}

// TestMemoryIsShort: what would take memory is refused as a whole, what holds or frees is not.
func TestMemoryIsShort(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := prefix()
	s := open(t, srv.Client(t), p)
	a, b := session(t, s, "a", lasting), session(t, s, "b", lasting)
	held, moved := win(t, s, a, "held"), win(t, s, a, "moved")
	do(t, srv, "CONFIG", "SET", "maxmemory", "1")
	before := dump(t, srv, p)
	_, err := s.Acquire(t.Context(), a, []store.Claim{claim("x"), claim("y")})
	require.ErrorContains(t, err, "OOM")
	_, err = s.Transfer(t.Context(), []store.Transfer{{Held: moved.Held(),
		To: store.Offer{Name: "moved", Owner: b.Owner, Session: b.ID, TTL: b.TTL, Nonce: 7}}})
	require.ErrorContains(t, err, "OOM")
	_, err = s.OpenSession(t.Context(), store.Session{ID: 1, TTL: lasting, Owner: store.Owner{Incarnation: "c"}})
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, dump(t, srv, p))

	require.NoError(t, must(s.Renew(t.Context(), []store.Session{a}))(t)[0].Err)
	require.Len(t, must(s.Get(t.Context(), "held"))(t), 1)
	require.True(t, must(s.Release(t.Context(), []store.Held{held.Held()}))(t)[0].OK)
	require.NoError(t, s.CloseSession(t.Context(), a))
	next, stop := watch(t, s, store.Scope{})
	require.Equal(t, store.EventSynced, next().Kind)
	stop()
	do(t, srv, "CONFIG", "SET", "maxmemory", "0")
	works(t, s)
}

// TestAnAnswerThatIsLost: the client repeats nothing that may have been applied.
func TestAnAnswerThatIsLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	route := must(srv.NewRoute())(t)
	s := open(t, route.Client(t, func(o *goredis.UniversalOptions) {
		o.MaxRetries, o.MinRetryBackoff = 5, time.Millisecond
	}), "{lost}")
	sess := session(t, s, "a", lasting)
	other := open(t, srv.Client(t), "{lost}")
	calls := func() (n int) {
		stats, _ := do(t, srv, "INFO", "commandstats").(string)
		_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
		_, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
		require.NoError(t, err)
		return n
	}
	for what, lose := range map[string]func(h store.Held) error{
		"acquire": func(store.Held) error {
			_, err := s.Acquire(t.Context(), sess, []store.Claim{claim("job")})
			return err
		},
		"release": func(h store.Held) error {
			_, err := s.Release(t.Context(), []store.Held{h})
			return err
		},
	} {
		var held store.Held
		if what == "release" {
			for _, r := range must(other.Get(t.Context(), "job"))(t) {
				require.True(t, must(other.Release(t.Context(), []store.Held{r.Held()}))(t)[0].OK)
			}
			held = win(t, s, sess, "job").Held()
		}
		works(t, s) // its scripts are known
		route.CutReplies()
		at := calls()
		lost := make(chan error, 1)
		go func() { lost <- lose(held) }()
		eventually(t, "it is applied", func() bool { return calls() == at+1 })
		route.Refuse() // a connection that ends has the client try another
		route.Heal()
		err := <-lost
		require.Error(t, err, what)
		require.NotErrorIs(t, err, store.ErrDenied)
		require.Equal(t, at+1, calls(), "one attempt")
		require.Len(t, must(other.Get(t.Context(), "job"))(t), map[string]int{"acquire": 1}[what])
	}
}

// TestScriptsAreForgotten, as by a restart or SCRIPT FLUSH: they are sent again.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.Client(t), prefix())
	works(t, s)
	do(t, srv, "SCRIPT", "FLUSH")
	works(t, s)
	do(t, srv, "FUNCTION", "FLUSH")
	works(t, s)
}

// TestOtherSettingsOfTheClient: the older protocol, and contexts that end what is read.
func TestOtherSettingsOfTheClient(t *testing.T) {
	t.Parallel()
	p := prefix()
	s := open(t, server(t).Client(t, func(o *goredis.UniversalOptions) { o.Protocol, o.ContextTimeoutEnabled = 2, true }), p)
	next := synced(t, s)
	r := works(t, s)
	require.Equal(t, r.Held(), next().Record.Held())
	require.Equal(t, store.EventDelete, next().Kind)
}

// TestStepsOfTheClock: forward, sessions end early; back, what was found to be over stays so, and
// tokens go on.
func TestStepsOfTheClock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithFaketime())
	s := open(t, srv.Client(t), prefix())
	a, b := session(t, s, "a", lasting), session(t, s, "b", 3*lasting)
	first := win(t, s, a, "job")
	require.NoError(t, srv.SetClock(2*lasting))
	require.Empty(t, must(s.Get(t.Context(), "job"))(t))
	require.NoError(t, srv.SetClock(-time.Hour))
	require.Empty(t, must(s.Get(t.Context(), "job"))(t))
	require.ErrorIs(t, must(s.Renew(t.Context(), []store.Session{a}))(t)[0].Err, store.ErrSessionGone)
	second := win(t, s, b, "job")
	require.Greater(t, second.Token, first.Token)
	third := ask(t, s, b, store.Claim{Name: "job", Nonce: 1, Supersedes: second.Token})[0]
	require.True(t, third.OK)
	require.Equal(t, second.Token, third.Replaced)
	require.Greater(t, third.Record.Token, second.Token)
}

// TestDataThatIsLost: a server that has forgotten all, or its last changes, issues no token below
// what a Store has seen, though its clock is behind. Others see the higher ones from then on.
func TestDataThatIsLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithFaketime())
	p := prefix()
	s := open(t, srv.Client(t), p)
	for _, all := range []bool{true, false} {
		a := session(t, s, "a", lasting)
		early := win(t, s, a, "early")
		before := dump(t, srv, p)
		late := win(t, s, a, "late")
		require.Greater(t, late.Token, early.Token)
		do(t, srv, "FLUSHALL")
		require.NoError(t, srv.SetClock(-time.Hour))
		if !all {
			for key, value := range before {
				do(t, srv, "RESTORE", p+":"+key, 0, value)
			}
			got := must(s.Get(t.Context(), "early", "late"))(t)
			require.Len(t, got, 1)
			require.Equal(t, early.Held(), got[0].Held())
		} else {
			require.ErrorIs(t, must(s.Renew(t.Context(), []store.Session{a}))(t)[0].Err, store.ErrSessionGone)
		}
		other := open(t, srv.Client(t), p) // which has seen nothing
		require.Greater(t, win(t, other, session(t, other, "b", lasting), "late").Token, late.Token)
		require.NoError(t, srv.SetClock(0))
	}
	require.Zero(t, s.Accepted())
	high := works(t, s).Token
	do(t, srv, "FLUSHALL")
	require.NoError(t, srv.SetClock(-time.Hour))
	require.NoError(t, s.AcceptHistory(t.Context()))
	require.Equal(t, 1, s.Accepted())
	require.Less(t, works(t, s).Token, high, "what was seen is forgotten")
}

// TestWhatRanOutIsSwept in bounded steps, by calls that write, though no Store watches.
func TestWhatRanOutIsSwept(t *testing.T) {
	t.Parallel()
	srv := server(t)
	s, p := fresh(t)
	const sessions, names = 100, 300
	do(t, srv, "EVAL", `for i = 1, ARGV[1] do
			redis.call('ZADD', KEYS[1], '1', 900000 + i)
			redis.call('HSET', KEYS[2], 900000 + i, 'hf1 1000 gone gone ')
		end
		for i = 1, ARGV[2] do
			redis.call('HSET', KEYS[3], 'job/' .. i, 'hf1 17 00000000000000aa 900001 1 ')
			redis.call('ZADD', KEYS[4], '0', '900001 job/' .. i)
		end
		return 1`, 4, p+":ends", p+":session", p+":lease", p+":own", sessions, names)
	size := func(key, command string) int64 { return do(t, srv, command, p+":"+key).(int64) }
	left := func() int64 { return size("lease", "HLEN") + size("ends", "ZCARD") }
	sess := session(t, s, "a", lasting)
	at, calls := left(), 0
	for ; left() > 1; calls++ {
		must(s.Renew(t.Context(), []store.Session{sess}))(t)
		now := left()
		require.Less(t, now, at)
		require.LessOrEqual(t, at-now, int64(17))
		at = now
	}
	require.GreaterOrEqual(t, calls, 20)
	require.Zero(t, size("own", "ZCARD"))
	require.Equal(t, int64(1), size("session", "HLEN"))
}

// TestAListingByOddPrefixes: names are bytes, and what patterns of Redis mean is escaped.
func TestAListingByOddPrefixes(t *testing.T) {
	t.Parallel()
	s, _ := fresh(t)
	sess := session(t, s, "a", lasting)
	names := []string{"a*b", "a?b", "a[b]", `a\b`, "a^b", "axb", "a b", "ä", "日本", "a-b"}
	for _, n := range names {
		win(t, s, sess, n)
	}
	for _, prefix := range append(slices.Clone(names), "", "a", "a*", "a?", "a[", `a\`, "\xc3", "\xe6\x97", "x", "a\x00") {
		var found, want []string
		for r, err := range s.List(t.Context(), store.Query{Prefix: prefix}) {
			require.NoError(t, err)
			found = append(found, r.Name)
		}
		for _, n := range names {
			if strings.HasPrefix(n, prefix) {
				want = append(want, n)
			}
		}
		require.ElementsMatch(t, want, found, "%q", prefix)
	}
}

// TestClose: calls and watches end with an error, and it may come twice.
func TestClose(t *testing.T) {
	t.Parallel()
	s, _ := fresh(t)
	works(t, s)
	next, _ := watch(t, s, store.Scope{})
	require.Equal(t, store.EventSynced, next().Kind)
	require.NoError(t, s.Close())
	require.ErrorContains(t, next().err, "the Store is closed")
	_, err := s.Get(t.Context(), "a")
	require.ErrorContains(t, err, "the Store is closed")
	require.NoError(t, s.Close())
}

// TestAServerThatHangs: a call ends with its context, and the Store ends all the same.
func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.Client(t, func(o *goredis.UniversalOptions) { o.ReadTimeout = time.Second }), prefix())
	works(t, s)
	next := synced(t, s)
	require.NoError(t, srv.Pause(t.Context()))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	_, err := s.Get(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "enough")
	require.NoError(t, s.Close())
	require.ErrorContains(t, next().err, "the Store is closed")
	require.NoError(t, srv.Resume())
}

// TestReplicasThatConfirm: what too few have confirmed is not known, and never refused. What is
// refused stays definite.
func TestReplicasThatConfirm(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := must(primary.NewReplica(t.Context()))(t)
	p := prefix()
	s := open(t, primary.Client(t), p, redis.WithWait(1, 500*time.Millisecond))
	a, b := session(t, s, "a", lasting), session(t, s, "b", lasting)
	confirms := func() bool {
		_, err := s.Renew(t.Context(), []store.Session{a, b})
		return err == nil
	}
	eventually(t, "a replica that has just come confirms", confirms)
	held := win(t, s, a, "job")
	require.NoError(t, replica.Pause(t.Context()))
	_, err := s.Acquire(t.Context(), a, []store.Claim{claim("other")})
	require.ErrorContains(t, err, "0 of 1 replicas have confirmed it within 500ms")
	require.NotErrorIs(t, err, store.ErrDenied)
	_, err = s.Renew(t.Context(), []store.Session{a})
	require.ErrorContains(t, err, "0 of 1 replicas")
	_, err = s.Transfer(t.Context(), []store.Transfer{{Held: held.Held(),
		To: store.Offer{Name: "job", Owner: b.Owner, Session: b.ID, TTL: b.TTL, Nonce: 7}}})
	require.ErrorContains(t, err, "0 of 1 replicas")
	got := must(s.Get(t.Context(), "job", "other"))(t)
	require.Len(t, got, 2, "they stand on the primary")

	out := ask(t, s, a, claim("job"))[0]
	require.False(t, out.OK)
	require.Equal(t, b.ID, out.Record.Session)
	_, err = s.Acquire(t.Context(), store.Session{ID: 1, Owner: a.Owner}, []store.Claim{claim("x")})
	require.ErrorIs(t, err, store.ErrSessionGone)
	require.True(t, must(s.Release(t.Context(), []store.Held{out.Record.Held()}))(t)[0].OK, "it does not wait")
	require.NoError(t, replica.Resume())
	eventually(t, "the replica confirms", confirms)
	win(t, s, a, "again")
}

// TestTheIndexOfSessions has each name once, whatever becomes of it.
func TestTheIndexOfSessions(t *testing.T) {
	t.Parallel()
	s, p := fresh(t)
	a := session(t, s, "a", lasting)
	again := store.Session{ID: store.SessionID(numbers.Add(1)), Owner: a.Owner, TTL: lasting}
	must(s.OpenSession(t.Context(), again))(t)
	b := session(t, s, "b", lasting)
	stands := func(want ...string) {
		t.Helper()
		var got []string
		for _, member := range do(t, server(t), "ZRANGE", p+":own", 0, -1).([]any) {
			got = append(got, member.(string))
		}
		require.Equal(t, want, got)
	}
	r := win(t, s, a, "job")
	r = ask(t, s, again, store.Claim{Name: "job", Nonce: 1, Supersedes: r.Token})[0].Record
	stands(fmt.Sprint(again.ID, " job"))
	r = must(s.Transfer(t.Context(), []store.Transfer{{Held: r.Held(),
		To: store.Offer{Name: "job", Owner: b.Owner, Session: b.ID, TTL: b.TTL, Nonce: 7}}}))(t)[0].Record
	stands(fmt.Sprint(b.ID, " job"))
	must(s.Release(t.Context(), []store.Held{r.Held()}))(t)
	stands()
}
