//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestNewRefusesBadInput(t *testing.T) {
	client := clientv3.NewCtxClient(t.Context())
	for _, bad := range []struct {
		name   string
		client *clientv3.Client
		opts   []etcd.Option
		says   string
	}{
		{"no client", nil, nil, "client"},
		{"nil option", client, []etcd.Option{nil}, "Option"},
		{"empty prefix", client, []etcd.Option{etcd.WithPrefix("")}, "1 to 512 bytes"},
		{"prefix too long", client, []etcd.Option{etcd.WithPrefix(strings.Repeat("x", 513))}, "1 to 512 bytes"},
		{"prefix no text", client, []etcd.Option{etcd.WithPrefix("a\xff/")}, "UTF-8"},
	} {
		s, err := etcd.New(bad.client, bad.opts...)
		require.Nil(t, s, bad.name)
		require.ErrorIs(t, err, store.ErrInvalid, bad.name)
		require.ErrorContains(t, err, bad.says, bad.name)
	}
	s := must(etcd.New(client, etcd.WithLogger(nil)))(t)
	require.Equal(t, etcd.DefaultPrefix, s.Prefix())
}

func TestCallsRefuseBadInput(t *testing.T) {
	t.Parallel()
	s := newStore(t, server(t).Client(t), fresh())
	ctx := t.Context()
	good := session(t, s, "a")
	_, err := s.OpenSession(ctx, store.Session{ID: 0, TTL: ttl})
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = s.OpenSession(ctx, store.Session{ID: 1})
	require.ErrorIs(t, err, store.ErrInvalid)
	refused := func(outs []store.Outcome, err error, why string) {
		t.Helper()
		require.NoError(t, err)
		require.Len(t, outs, 1)
		require.False(t, outs[0].OK, why)
		require.ErrorIs(t, outs[0].Err, store.ErrInvalid, why)
	}
	outs, err := s.Acquire(ctx, good, []store.Claim{{Name: "a//b", Nonce: 1}})
	refused(outs, err, "the name has an empty segment")
	_, err = s.Acquire(ctx, store.Session{Owner: good.Owner, TTL: ttl}, []store.Claim{{Name: "a", Nonce: 1}})
	require.ErrorIs(t, err, store.ErrInvalid, "a record under session 0 would never expire")
	a := win(t, s, good, "a")
	outs, err = s.Transfer(ctx, []store.Transfer{{Held: a.Held(), To: store.Offer{Name: "a", Nonce: 2}}})
	refused(outs, err, "no client could read a record without an owner")
	recs := must(s.Get(ctx, "a"))(t)
	require.Equal(t, a.Token, recs[0].Token, "something was applied")
}

// TestTTL: whole seconds, not below the server's floor, and never less than was
// asked for.
func TestTTL(t *testing.T) {
	t.Parallel()
	client := server(t).Client(t)
	logs, seen := observer.New(zap.InfoLevel)
	s := newStore(t, client, fresh(), etcd.WithLogger(zap.New(logs)))
	warned := func() *observer.ObservedLogs { return seen.FilterMessageSnippet("raised") }
	raised := 0
	for _, c := range []struct {
		ask, get time.Duration
		raised   bool
	}{
		{time.Millisecond, 2 * time.Second, true},
		{time.Second, 2 * time.Second, true},
		{1001 * time.Millisecond, 2 * time.Second, false},
		{2 * time.Second, 2 * time.Second, false},
		{2500 * time.Millisecond, 3 * time.Second, false},
		{10 * time.Second, 10 * time.Second, false},
	} {
		want := store.Session{ID: store.SessionID(ids.Add(1)), TTL: c.ask, Owner: store.Owner{Incarnation: "x"}}
		for range 2 { // the second time it exists
			g := must(s.OpenSession(t.Context(), want))(t)
			require.Equal(t, c.get, g.TTL, "asked for %v", c.ask)
			if c.raised {
				raised++
				eventually(t, soon, "it is logged", func() bool { return warned().Len() >= raised })
				require.EqualValues(t, 2, warned().All()[raised-1].ContextMap()["granted_s"])
			}
			require.Equal(t, raised, warned().Len(), "asked for %v", c.ask)
		}
	}
}

// TestPrefixes: stores with one prefix are one store, others see nothing of it,
// and a namespaced client keeps to its namespace.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	c := server(t)
	client, spaced := c.Client(t), c.Client(t)
	base := fresh()
	spaced.KV = namespace.NewKV(spaced.KV, base)
	spaced.Watcher = namespace.NewWatcher(spaced.Watcher, base)
	spaced.Lease = namespace.NewLease(spaced.Lease, base)
	first, second := newStore(t, client, base+"p/"), newStore(t, c.Client(t), base+"p/")
	other, within := newStore(t, client, base+"q/"), newStore(t, spaced, "p/")

	a := win(t, first, session(t, first, "a"), "job/1")
	for _, s := range []*etcd.Store{second, within} {
		sess := session(t, s, "b")
		outs, err := s.Acquire(t.Context(), sess, []store.Claim{{Name: "job/1", Nonce: 1}, {Name: "job/1", Nonce: 2, Supersedes: a.Token}})
		require.NoError(t, err)
		for _, out := range outs {
			require.False(t, out.OK)
			require.Equal(t, a, out.Record)
		}
	}
	b := win(t, other, session(t, other, "c"), "job/1")
	require.Greater(t, b.Token, a.Token)
	for _, s := range []*etcd.Store{first, second, within} {
		var got []store.Record
		for r, err := range s.List(t.Context(), store.Query{}) {
			require.NoError(t, err)
			got = append(got, r)
		}
		require.Equal(t, []store.Record{a}, got)
		for ev, err := range s.Watch(t.Context(), store.Scope{Prefix: "job/"}) {
			require.NoError(t, err)
			require.Equal(t, a, ev.Record)
			break
		}
	}
	// The namespaced store does everything, not only reads.
	sess := session(t, within, "d")
	d := win(t, within, sess, "job/2")
	g := must(within.Renew(t.Context(), []store.Session{sess}))(t)
	require.NoError(t, g[0].Err)
	target := session(t, within, "e")
	moved, err := within.Transfer(t.Context(), []store.Transfer{{Held: d.Held(),
		To: store.Offer{Name: "job/2", Owner: target.Owner, Session: target.ID, TTL: target.TTL, Nonce: 7}}})
	require.NoError(t, err)
	require.True(t, moved[0].OK)
	out := must(within.Release(t.Context(), []store.Held{moved[0].Record.Held()}))(t)
	require.True(t, out[0].OK)
}

// TestGuard: a journal in etcd refuses a writer whose ownership has passed, even
// one that has not noticed.
func TestGuard(t *testing.T) {
	t.Parallel()
	c := server(t)
	client := c.Client(t)
	prefix := fresh()
	a, b := newNode(t, client, prefix, "a", lasting), newNode(t, client, prefix, "b", lasting)
	write := func(n *node, term lease.Term, entry string) bool {
		resp, err := client.Txn(t.Context()).If(n.store.Guard(term)).Then(clientv3.OpPut(prefix+"journal", entry)).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	// Sessions of their own, so that one can be revoked.
	ha, hb := a.lease(t, "writer", lease.WithOwnSession()), b.lease(t, "writer")
	won := must(ha.Acquire(t.Context()))(t)
	require.True(t, won)
	old, _ := ha.Term()
	require.True(t, write(a, old, "by a"))

	r, ok, err := ha.Holder(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	must(client.Revoke(t.Context(), clientv3.LeaseID(r.Session)))(t)
	require.False(t, write(a, old, "by nobody"), "the name is nobody's")
	<-old.Context().Done()
	require.ErrorIs(t, context.Cause(old.Context()), lease.ErrRecordGone)
	eventually(t, soon, "b has it", func() bool { won, _ := hb.Acquire(t.Context()); return won })
	next, _ := hb.Term()
	require.False(t, write(a, old, "by a, too late"))
	require.True(t, write(b, next, "by b"))
	require.False(t, write(a, old, "by a, much too late"))
	got := must(client.Get(t.Context(), prefix+"journal"))(t)
	require.Equal(t, "by b", string(got.Kvs[0].Value))
}

// TestManyNames: one call may carry any number; servers that take few operations
// in one Txn are found out.
func TestManyNames(t *testing.T) {
	t.Parallel()
	small := etcdtest.Start(t, etcdtest.WithArgs("--max-txn-ops=16"))
	for _, c := range []struct {
		server string
		client *clientv3.Client
	}{
		{"default", server(t).Client(t)},
		{"max-txn-ops=16", small.Client(t)},
	} {
		for _, begin := range []string{"Acquire", "Get"} {
			t.Run(c.server+", first "+begin, func(t *testing.T) {
				s := newStore(t, c.client, fresh())
				sess, target := session(t, s, "a"), session(t, s, "b")
				const n = 1000
				claims, names := make([]store.Claim, n), make([]string, n)
				for i := range claims {
					names[i] = fmt.Sprintf("many/%04d", i)
					claims[i] = store.Claim{Name: names[i], Nonce: uint64(i + 1)}
				}
				if begin == "Get" {
					recs := must(s.Get(t.Context(), names...))(t)
					require.Empty(t, recs)
				}
				start := time.Now()
				outs := must(s.Acquire(t.Context(), sess, claims))(t)
				require.Len(t, outs, n)
				t.Logf("%d names in %v", n, time.Since(start))
				moves, held := make([]store.Transfer, n), make([]store.Held, n)
				for i, out := range outs {
					require.True(t, out.OK)
					require.Equal(t, names[i], out.Record.Name)
					moves[i] = store.Transfer{Held: out.Record.Held(), To: store.Offer{Name: names[i], Owner: target.Owner,
						Session: target.ID, TTL: target.TTL, Nonce: uint64(i + 5000)}}
				}
				outs = must(s.Transfer(t.Context(), moves))(t)
				for i, out := range outs {
					require.True(t, out.OK)
					require.Greater(t, out.Record.Token, moves[i].Token)
					held[i] = out.Record.Held()
				}
				outs = must(s.Release(t.Context(), held))(t)
				for _, out := range outs {
					require.True(t, out.OK)
				}
				recs := must(s.Get(t.Context(), names...))(t)
				require.Empty(t, recs)
			})
		}
	}
}

// TestLargeRecords: a batch that is too large for a request is parted; a record whose
// metadata are too large is refused, alone, and so is one that is too large by its owner.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	s := newStore(t, server(t).Client(t), fresh())
	sess := session(t, s, "a")
	claims := make([]store.Claim, 120)
	for i := range claims {
		claims[i] = store.Claim{Name: fmt.Sprintf("large/%d", i), Nonce: uint64(i + 1), Metadata: map[string]string{"m": strings.Repeat("x", 30_000)}}
	}
	for i, size := range map[int]int{7: 245_761, 8: 3_000_000} { // beyond the Limits
		claims[i].Metadata = map[string]string{"m": strings.Repeat("x", size)}
	}
	outs := must(s.Acquire(t.Context(), sess, claims))(t)
	for i, out := range outs {
		if i == 7 || i == 8 {
			require.False(t, out.OK)
			require.ErrorIs(t, out.Err, store.ErrInvalid)
			continue
		}
		require.True(t, out.OK, "%d: %v", i, out.Err)
	}
	n := 0
	for _, err := range s.List(t.Context(), store.Query{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, len(claims)-2, n)
	require.NoError(t, s.CloseSession(t.Context(), sess))

	for _, size := range []int{1_700_000, 3_000_000} { // refused by the server, and by the client
		large := session(t, s, "a")
		large.Owner.Address = strings.Repeat("x", size)
		outs, err := s.Acquire(t.Context(), large, []store.Claim{{Name: "large/a", Nonce: 1}, {Name: "large/b", Nonce: 2}})
		require.NoError(t, err)
		for _, out := range outs {
			require.False(t, out.OK)
			require.ErrorIs(t, out.Err, store.ErrInvalid)
			require.ErrorContains(t, out.Err, "larger than the server takes")
		}
		require.NoError(t, s.CloseSession(t.Context(), large))
	}
}

// TestCallsEndWithTheirContext: over a link that is cut, whatever the client does
// inside, and then say in the caller's terms what happened.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	route := must(server(t).NewRoute())(t)
	s := newStore(t, route.Client(t, func(cfg *clientv3.Config) {
		// No timeout of the client's own ends a call while it is waited for.
		cfg.DialTimeout, cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = lasting, lasting, lasting
	}), fresh())
	sess := session(t, s, "a")
	a := win(t, s, sess, "a")
	calls := map[string]func(context.Context) error{
		"OpenSession":  func(ctx context.Context) error { _, err := s.OpenSession(ctx, sess); return err },
		"CloseSession": func(ctx context.Context) error { return s.CloseSession(ctx, sess) },
		"Acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, sess, []store.Claim{{Name: "b", Nonce: 1}})
			return err
		},
		"Renew": func(ctx context.Context) error {
			g, err := s.Renew(ctx, []store.Session{sess})
			if err == nil {
				err = g[0].Err
			}
			return err
		},
		"Release": func(ctx context.Context) error { _, err := s.Release(ctx, []store.Held{a.Held()}); return err },
		"Transfer": func(ctx context.Context) error {
			offer := store.Offer{Name: "a", Owner: sess.Owner, Session: 1, TTL: ttl, Nonce: 1}
			_, err := s.Transfer(ctx, []store.Transfer{{Held: a.Held(), To: offer}})
			return err
		},
		"Get": func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"List": func(ctx context.Context) error {
			for _, err := range s.List(ctx, store.Query{}) {
				return err
			}
			return nil
		},
	}
	for _, how := range []struct {
		name  string
		fault func()
	}{{"cut", route.Cut}, {"refused", route.Refuse}} {
		how.fault()
		t.Run(how.name, func(t *testing.T) {
			for name, call := range calls {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ends := func(ctx context.Context) error { // the call, though nothing but ctx ends
						ended := make(chan error, 1)
						go func() { ended <- call(ctx) }()
						select {
						case err := <-ended:
							if how.name == "cut" {
								require.Error(t, ctx.Err(), "it ended before its context: %v", err)
							}
							return err
						case <-time.After(soon):
							require.FailNow(t, "it does not end with its context")
							return nil
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					err := ends(ctx)
					require.ErrorIs(t, err, etcd.ErrUnreachable)
					require.ErrorContains(t, err, route.Endpoints()[0])
					require.NotErrorIs(t, err, store.ErrSessionGone)

					// A Keeper ends attempts by a timer of its own.
					late := fmt.Errorf("no answer within 1s: %w", context.DeadlineExceeded)
					timed, stop := context.WithCancelCause(t.Context())
					defer time.AfterFunc(200*time.Millisecond, func() { stop(late) }).Stop()
					defer stop(nil)
					require.ErrorIs(t, ends(timed), etcd.ErrUnreachable)

					// A caller that cancels knows why.
					canceled, stopNow := context.WithCancel(t.Context())
					stopNow()
					require.ErrorIs(t, ends(canceled), context.Canceled)
				})
			}
		})
	}
}
