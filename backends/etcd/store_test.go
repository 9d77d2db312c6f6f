//go:build unix

package etcd_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/churn"
	"github.com/holdfast-go/holdfast/internal/labelled"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
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

// TestManyNames: one call may carry any number.
func TestManyNames(t *testing.T) {
	t.Parallel()
	s := newStore(t, server(t).Client(t), fresh())
	sess, target := session(t, s, "a"), session(t, s, "b")
	const n = 1000
	claims, names := make([]store.Claim, n), make([]string, n)
	for i := range claims {
		names[i] = fmt.Sprintf("many/%04d", i)
		claims[i] = store.Claim{Name: names[i], Nonce: uint64(i + 1)}
	}
	outs := must(s.Acquire(t.Context(), sess, claims))(t)
	require.Len(t, outs, n)
	moves, held := make([]store.Transfer, n), make([]store.Held, n)
	for i, out := range outs {
		require.True(t, out.OK)
		require.Equal(t, names[i], out.Record.Name)
		moves[i] = store.Transfer{Held: out.Record.Held(), To: store.Offer{Name: names[i], Owner: target.Owner,
			Session: target.ID, TTL: target.TTL, Nonce: uint64(i + 5000)}}
	}
	for i, out := range must(s.Transfer(t.Context(), moves))(t) {
		require.True(t, out.OK)
		require.Greater(t, out.Record.Token, moves[i].Token)
		held[i] = out.Record.Held()
	}
	require.Len(t, must(s.Get(t.Context(), names...))(t), n)
	for _, out := range must(s.Release(t.Context(), held))(t) {
		require.True(t, out.OK)
	}
	require.Empty(t, must(s.Get(t.Context(), names...))(t))
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

// TestAuth: without a user, or with one that lacks a permission, the error says
// what is missing; the right user holds leases, also over a restart that makes
// the servers forget all tokens.
func TestAuth(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithAuth())
	ctx := t.Context()
	prefix := fresh()
	require.NoError(t, c.AddUser(ctx, "worker", "pw", etcdtest.Permission{Prefix: prefix, Access: etcdtest.ReadWrite}))
	require.NoError(t, c.AddUser(ctx, "reader", "pw", etcdtest.Permission{Prefix: prefix, Access: etcdtest.Read}))
	require.NoError(t, c.AddUser(ctx, "nobody", "pw"))

	for _, refused := range []struct {
		name string
		as   func(*clientv3.Config)
		says []string
	}{
		{"no user", etcdtest.AsUser("", ""), []string{"user and password", "clientv3.Config.Username"}},
		{"no permission", etcdtest.AsUser("nobody", "pw"), []string{"readwrite", prefix, "grant-permission"}},
		{"read only", etcdtest.AsUser("reader", "pw"), []string{"readwrite", prefix, "grant-permission"}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			n := newNode(t, c.Client(t, refused.as), prefix, "n", ttl)
			won, err := n.lease(t, "job").Acquire(ctx)
			require.False(t, won)
			require.ErrorIs(t, err, store.ErrDenied)
			require.NotErrorIs(t, err, lease.ErrUnknown)
			err = refusal(t, n.store, soon)
			require.ErrorIs(t, err, etcd.ErrPermission)
			for _, text := range refused.says {
				require.ErrorContains(t, err, text)
			}
			if refused.name != "read only" {
				for _, err = range n.store.List(ctx, store.Query{}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
				for _, err = range n.store.Watch(ctx, store.Scope{}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
				for _, err = range n.store.Watch(ctx, store.Scope{Deletions: true}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
			}
		})
	}

	t.Run("allowed", func(t *testing.T) {
		n := newNode(t, c.Client(t, etcdtest.AsUser("worker", "pw")), prefix, "worker", lasting)
		names := map[string]time.Duration{"job/1": 0, "job/2": 300 * time.Millisecond}
		var j journal
		stop := j.group(t, []*node{n}, names)
		began := now()
		j.held(t, began, names)
		sess := session(t, n.store, "direct")
		renew := func() error {
			grants, err := n.store.Renew(ctx, []store.Session{sess})
			if err == nil {
				err = grants[0].Err
			}
			return err
		}
		require.NoError(t, renew())
		passwords, streams := authentications(t, c)
		const renewals = 20
		for range renewals {
			require.NoError(t, renew())
		}
		// A password check takes the server as long as hundreds of requests. The stream that
		// renewals share costs one when it begins again, and so does that of each watch.
		eventually(t, soon, "passwords are checked for streams alone", func() bool {
			p, s := authentications(t, c)
			return p-passwords <= s-streams
		})
		_, more := authentications(t, c)
		require.Less(t, more-streams, renewals/2.0)
		require.NoError(t, c.Members()[0].Restart(ctx)) // tokens are in memory
		back := now()
		t.Logf("held %v after a restart", j.held(t, back, names))
		eventually(t, soon, "it is renewed", func() bool { return renew() == nil })
		require.Zero(t, j.lost(began), "lost for no reason")
		stop()
		j.check(t)
	})
}

// authentications returns how many passwords were checked, and how many streams were begun.
func authentications(t *testing.T, c *etcdtest.Cluster) (passwords, streams float64) {
	m := must(c.Members()[0].Metrics(t.Context()))(t)
	of := func(metric, method string) float64 {
		n := m.Sum(metric, fmt.Sprintf("grpc_method=%q", method))
		require.NotZero(t, n, "the server does not count %s", method)
		return n
	}
	return of("grpc_server_handled_total", "Authenticate"),
		of("grpc_server_started_total", "LeaseKeepAlive") + of("grpc_server_started_total", "Watch")
}

// TestTLS: the client's certificates are all it takes.
func TestTLS(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithTLS(authority.New(t).Issue(t, "127.0.0.1")))
	prefix := fresh()
	names := map[string]time.Duration{"job/1": 0, "job/2": 100 * time.Millisecond}
	a, b := newNode(t, c.Client(t), prefix, "a", lasting), newNode(t, c.Client(t), prefix, "b", lasting)
	var j journal
	stop := j.group(t, []*node{a, b}, names)
	began := now()
	j.held(t, began, names)
	for _, n := range []*node{a, b} {
		j.by(t, n.id, began)
		grants := must(n.store.Renew(t.Context(), []store.Session{session(t, n.store, n.id)}))(t)
		require.NoError(t, grants[0].Err)
	}
	stop()
	require.Zero(t, j.lost(began))
	j.check(t)

	plain := must(c.NewClient(func(cfg *clientv3.Config) { cfg.TLS = nil }))(t)
	defer plain.Close()
	require.ErrorIs(t, refusal(t, newStore(t, plain, prefix), time.Second), etcd.ErrUnreachable)
}

// refusal is the error of the first step towards a name that fails.
func refusal(t *testing.T, s *etcd.Store, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	sess := store.Session{ID: store.SessionID(ids.Add(1)), TTL: ttl, Owner: store.Owner{Incarnation: "refused"}}
	_, err := s.OpenSession(ctx, sess)
	if err == nil {
		_, err = s.Acquire(ctx, sess, []store.Claim{{Name: "refused", Nonce: 1}})
	}
	require.Error(t, err)
	return err
}

// TestQuota: when etcd's quota is used up, what is held stays held and can be
// given up; new acquisitions fail and say why, until there is space again.
func TestQuota(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes=4194304"))
	ctx, client := t.Context(), c.Client(t)
	alarm := func() bool {
		st := must(client.Status(ctx, c.Endpoints()[0]))(t)
		return len(st.Errors) > 0
	}
	n := newNode(t, c.Client(t), fresh(), "n", 10*time.Second) // an attempt lasts the longer, the longer a TTL is
	kept, given, late := n.lease(t, "kept"), n.lease(t, "given"), n.lease(t, "late")
	own := n.lease(t, "own", lease.WithOwnSession())
	for _, h := range []*lease.Handle{kept, given} {
		won := must(h.Acquire(ctx))(t)
		require.True(t, won)
	}
	term, _ := kept.Term()

	sess := session(t, n.store, "direct")
	fill, much, err := "fill/", strings.Repeat("x", 512<<10), error(nil)
	for i := 0; err == nil; i++ {
		_, err = client.Put(ctx, fmt.Sprint(fill, i), much)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	eventually(t, soon, "the alarm", alarm)
	var refused sync.WaitGroup
	for _, h := range []*lease.Handle{late, own} { // in a session that stands, and in one to be opened
		refused.Go(func() {
			won, err := h.Acquire(ctx)
			assert.False(t, won)
			assert.ErrorIs(t, err, lease.ErrUnknown)
		})
	}
	refused.Wait()
	_, inSession := n.store.Acquire(ctx, sess, []store.Claim{{Name: "direct", Nonce: 1}})
	for _, err := range []error{inSession, refusal(t, n.store, soon)} {
		require.ErrorIs(t, err, etcd.ErrNoSpace)
		require.ErrorContains(t, err, "--quota-backend-bytes")
	}
	grants := must(n.store.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, grants[0].Err, "renewals stopped")
	require.True(t, term.CheckAlive())
	require.NoError(t, given.Release(ctx))
	recs := must(n.store.Get(ctx, "given", "kept"))(t)
	require.Len(t, recs, 1)

	must(client.Delete(ctx, fill, clientv3.WithPrefix()))(t)
	compact(t, client)
	must(client.Defragment(ctx, c.Endpoints()[0]))(t)
	must(client.AlarmDisarm(ctx, &clientv3.AlarmMember{}))(t)
	eventually(t, soon, "no alarm", func() bool { return !alarm() })
	freed := now()
	for _, h := range []*lease.Handle{given, late, own} {
		eventually(t, soon, "acquired", func() bool { won, _ := h.Acquire(ctx); return won })
	}
	t.Logf("all acquired %v after there was space", now()-freed)
	require.True(t, term.CheckAlive())
}

// The kit on a cluster that is never left alone. Between the kit and the store
// stands a settler: it repeats what got no answer, and settles it to the one
// outcome that it knows of, or to none. Everything the kit checks must hold of
// these outcomes: who won, which tokens, what is seen by whom and watched.
//
// Each test runs the whole kit, all cases at once, in some 25 s; and again, until
// enough has happened to the cluster. For longer, and to draw the same again:
//
//	go test ./backends/etcd -run TestConformanceWhile -etcd.rounds=50 -timeout 30m
//	go test ./backends/etcd -run TestConformanceWhile -etcd.seed=12345
//
// Left out are setup/restart, which restarts the cluster itself;
// watch/leaves-nothing, as all cases share the streams of one client, and so the
// goroutines that it counts; and deletions/…: a deletion does not show whether its
// record was one that landed after its client had stopped waiting.
// TestConformance has them all.
var (
	churnRounds = flag.Int("etcd.rounds", 1, "how often the kit runs at least on a cluster under disturbance")
	churnSeed   = flag.Uint64("etcd.seed", 0, "repeats the draws of a run on a cluster under disturbance; 0: new ones")
)

const (
	// churnTTL lets a session live through an election, between two renewals.
	churnTTL = 5 * time.Second
	// churnStall is generous for a call that meets an election, or a member that
	// is stopped, on a machine that is busy.
	churnStall = 5 * time.Second
	// mostRounds is how often the kit runs at most so that enough happens.
	mostRounds = 5
)

// hasty is the patience of settlers on a cluster under disturbance.
var hasty = settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// TestConformanceWhileLeadersDie: the leader is killed, and restarted up to a
// second later, all the while.
func TestConformanceWhileLeadersDie(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance restarts its server")
	t.Parallel()
	conformWhile(t, churn.Churn{
		What: "leaders killed and restarted",
		// A new leader gives every session its whole TTL again. Every other pause is long
		// enough for that to end.
		Pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2500*time.Millisecond
			}
			return churn.Between(r, time.Second, 3*time.Second)
		},
		// How many requests a leader applies and dies before it answers is chance: 2 of
		// 583 in five rounds, 4 to 10 in one.
		Least: churn.Least{Faults: 3, Settled: 50},
	}, 15*time.Second, func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		if err := leader.Kill(); err != nil {
			return err
		}
		time.Sleep(churn.Between(r, 0, time.Second))
		return leader.Restart(ctx)
	})
}

// TestConformanceWhileFollowersStop: a follower is stopped, and continued up to
// two seconds later, all the while. What was sent to it lands then, if it lands,
// when its sender has long turned to another member.
func TestConformanceWhileFollowersStop(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance restarts its server")
	t.Parallel()
	conformWhile(t, churn.Churn{
		What:  "followers stopped and continued",
		Pause: func(_ int, r *rand.Rand) time.Duration { return churn.Between(r, time.Second, 2*time.Second) },
		Least: churn.Least{Faults: 6, Settled: 150, Evident: 8},
	}, churnTTL+2*time.Second, func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		follower := leader
		for follower == leader {
			follower = c.Members()[r.IntN(3)]
		}
		if err := follower.Stop(ctx); err != nil {
			return err
		}
		time.Sleep(churn.Between(r, 500*time.Millisecond, 2*time.Second))
		return follower.Cont()
	})
}

// conformWhile runs the kit on a cluster of three while ch goes on, whose fault is of that cluster.
func conformWhile(t *testing.T, ch churn.Churn, slack time.Duration, fault func(context.Context, *etcdtest.Cluster, *rand.Rand) error) {
	unsteady(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	ch.Fault = func(ctx context.Context, r *rand.Rand) error { return fault(ctx, c, r) }
	ch.Rounds, ch.Most, ch.Seed, ch.SeedFlag = *churnRounds, mostRounds, *churnSeed, "etcd.seed"
	var counts settler.Tally
	client := c.Client(t)
	ch.Run(t, &counts, func(t *testing.T, seed uint64) {
		storetest.Run(t, settled(client, &counts), storetest.TTL(churnTTL), storetest.ExpirySlack(slack),
			storetest.Disturbed(churnStall), storetest.Seed(seed),
			storetest.BadRecords(settledBad(client, &counts)), storetest.Unreachable(settledCut(c, &counts)))
	})
}

// settled makes stores of which every client is a settler.
func settled(client *clientv3.Client, counts *settler.Tally) storetest.Factory {
	return func(tb storetest.TB) func() store.Store {
		prefix, known := fresh(), settler.NewLedger(counts)
		return func() store.Store {
			return settler.New(newStore(tb, client, prefix), known, hasty)
		}
	}
}

// settledBad makes such stores in which foreign values stand.
func settledBad(client *clientv3.Client, counts *settler.Tally) func(storetest.TB) (func() store.Store, func(string)) {
	return func(tb storetest.TB) (func() store.Store, func(string)) {
		clients := settled(client, counts)(tb)
		prefix := clients().(*settler.Store).Inner().(interface{ Prefix() string }).Prefix()
		return clients, func(name string) {
			for tb.Context().Err() == nil {
				ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
				_, err := client.Put(ctx, prefix+name, "garbage")
				cancel()
				if err == nil {
					return
				}
			}
		}
	}
}

// settledCut makes such stores whose requests never arrive.
func settledCut(c *etcdtest.Cluster, counts *settler.Tally) storetest.Factory {
	return func(tb storetest.TB) func() store.Store {
		route, err := c.NewRoute()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		client, err := route.NewClient()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		tb.Cleanup(func() { client.Close() })
		route.Cut()
		return settled(client, counts)(tb)
	}
}

// TestCluster: three nodes churn over a cluster of three, to which everything
// that happens to a cluster happens. Never two believe at once, tokens only
// grow, and after every fault all names are held again.
func TestCluster(t *testing.T) {
	tier.NightlyOnly(t, "TestOutage kills and restarts one server under holders")
	t.Parallel()
	alone(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	prefix := fresh()
	names := map[string]time.Duration{"long/1": 0, "long/2": 0, "long/3": 0,
		"short/1": 200 * time.Millisecond, "short/2": 300 * time.Millisecond, "short/3": 500 * time.Millisecond}
	var nodes []*node
	for i := range 3 {
		nodes = append(nodes, newNode(t, c.Client(t), prefix, fmt.Sprintf("node-%d", i), ttl))
	}
	var j journal
	stop := j.group(t, nodes, names)
	j.held(t, now(), names)
	ctx := t.Context()

	leader := func(not ...*etcdtest.Member) *etcdtest.Member {
		m := must(c.Leader(ctx, not...))(t)
		return m
	}
	follower := func() *etcdtest.Member {
		l := leader()
		others := make([]*etcdtest.Member, 0, 2)
		for _, m := range c.Members() {
			if m != l {
				others = append(others, m)
			}
		}
		return others[rand.IntN(len(others))]
	}
	last := func(d time.Duration) { // the fault, with the load going on
		began := now()
		eventually(t, d+soon, "time passes", func() bool { return now() >= began+d })
	}

	for _, fault := range []struct {
		name  string
		times int
		do    func()
	}{
		{"leader killed and restarted", 3, func() {
			l := leader()
			require.NoError(t, l.Kill())
			leader(l)
			require.NoError(t, l.Restart(ctx))
		}},
		{"follower stopped and continued", 3, func() {
			f := follower()
			require.NoError(t, f.Stop(ctx))
			last(1500 * time.Millisecond)
			require.NoError(t, f.Cont()) // what was sent to it lands now
		}},
		{"leader stopped and continued", 1, func() {
			l := leader()
			require.NoError(t, l.Stop(ctx))
			leader(l)
			last(ttl)
			j.mayRob()
			require.NoError(t, l.Cont())
		}},
		{"leader moved", 3, func() {
			old, to := leader(), follower()
			_, err := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{old.Direct()} }).MoveLeader(ctx, to.ID())
			require.NoError(t, err)
			eventually(t, soon, "it leads", func() bool { return leader() == to })
		}},
		{"follower isolated", 1, func() {
			f := follower()
			require.NoError(t, f.Isolate())
			last(3 * time.Second)
			require.NoError(t, f.Rejoin())
		}},
		{"leader isolated", 1, func() {
			l := leader()
			require.NoError(t, l.Isolate())
			leader(l)
			last(ttl)
			require.NoError(t, l.Rejoin())
		}},
	} {
		began := now()
		var worst time.Duration
		for range fault.times {
			fault.do()
			worst = max(worst, j.held(t, now(), names))
		}
		t.Logf("%s: all held at most %v later; %d lost in %v", fault.name, worst.Round(time.Millisecond), j.lost(began),
			(now() - began).Round(time.Millisecond))
		j.check(t)
	}
	stop()
	j.check(t)
	require.Greater(t, len(j.all()), 50, "hardly anything happened")
}

// TestConformance runs the kit against one server.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	client := c.Client(t)
	factory := func(tb storetest.TB) func() store.Store {
		prefix := fresh()
		return func() store.Store { return newStore(tb, client, prefix) }
	}
	storetest.Run(t, factory,
		storetest.TTL(2*time.Second),
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
			route, err := c.NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			prefix := fresh()
			cut, err := route.NewClient()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			tb.Cleanup(func() { cut.Close() })
			route.Cut()
			return func() store.Store { return newStore(tb, cut, prefix) }
		}),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			prefix := fresh()
			var n int
			return func() store.Store { return newStore(tb, client, prefix) }, func(name string) {
				bad := []string{"", "garbage", "hf1 ", "hf1 000000000000000g {}", "hf1 0000000000000001 {", "hf2 0000000000000001 {}"}
				n++
				_, err := client.Put(context.Background(), prefix+name, bad[n%len(bad)])
				require.NoError(t, err)
			}
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := etcdtest.Start(t)
			prefix, client := fresh(), own.Client(t)
			return func() store.Store { return newStore(tb, client, prefix) }, func() {
				if err := own.Members()[0].Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}),
	)
}

// TestErrorsWithoutMajority: the one member that is left says that there is no
// leader, at once; without any, the endpoints are named.
func TestErrorsWithoutMajority(t *testing.T) {
	t.Parallel()
	alone(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	client := c.Client(t)
	s := newStore(t, client, fresh())
	sess := session(t, s, "a")
	for _, m := range c.Members()[:2] {
		require.NoError(t, m.Kill())
	}
	ask := func() (err error, answered bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Acquire(ctx, sess, []store.Claim{{Name: "a", Nonce: 1}})
		return err, ctx.Err() == nil
	}
	var err error
	eventually(t, soon, "the member noticed", func() bool {
		var answered bool
		err, answered = ask()
		return errors.Is(err, etcd.ErrNoLeader) && answered
	})
	require.ErrorContains(t, err, "etcd acquire")
	grants, err := s.Renew(t.Context(), []store.Session{sess})
	if err == nil {
		err = grants[0].Err
	}
	require.ErrorIs(t, err, etcd.ErrNoLeader)
	require.NoError(t, c.Members()[2].Kill())
	eventually(t, soon, "no endpoint", func() bool { err, _ = ask(); return errors.Is(err, etcd.ErrUnreachable) })
	for _, endpoint := range c.Endpoints() {
		require.ErrorContains(t, err, endpoint)
	}
}

// TestSilentEndpoints: endpoints that do not answer do not keep a store from
// opening sessions at another.
func TestSilentEndpoints(t *testing.T) {
	t.Parallel()
	c := server(t)
	var endpoints []string
	for range 5 {
		route := must(c.NewRoute())(t)
		route.Cut()
		endpoints = append(endpoints, route.Endpoints()...)
	}
	endpoints = append(endpoints, c.Endpoints()...)
	s := newStore(t, c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = endpoints }), fresh())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := s.OpenSession(ctx, store.Session{ID: store.SessionID(ids.Add(1)), TTL: ttl, Owner: store.Owner{Incarnation: "x"}})
	require.NoError(t, err)
}

// TestClosedClient: a client that its owner closed gives errors, before the context ends, and no panic.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	client, err := server(t).NewClient()
	require.NoError(t, err)
	s := newStore(t, client, fresh())
	stands := session(t, s, "b")
	require.NoError(t, client.Close())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	defer func() { require.NoError(t, ctx.Err()) }()
	for range 2 {
		_, err = s.Get(ctx, "a")
		require.Error(t, err)
		_, err = s.Acquire(ctx, stands, []store.Claim{{Name: "b", Nonce: 1}})
		require.Error(t, err)
		_, err = s.Renew(ctx, []store.Session{stands})
		require.Error(t, err)
		_, err = s.OpenSession(ctx, store.Session{ID: 12, TTL: ttl, Owner: stands.Owner})
		require.Error(t, err)
		for _, err = range s.Watch(ctx, store.Scope{}) {
			break
		}
		require.Error(t, err)
	}
}

// TestGRPCProxy: a session is not opened through etcd's grpc-proxy, and one that was
// opened past it is not renewed through it.
func TestGRPCProxy(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	endpoint := grpcProxy(t, c)
	proxied := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{endpoint} })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := proxied.Get(ctx, "a")
	require.NoError(t, err, "it works")

	prefix := fresh()
	through := newStore(t, proxied, prefix)
	_, err = through.OpenSession(ctx, store.Session{ID: 12, TTL: 2 * time.Second, Owner: store.Owner{ID: "a", Incarnation: "a"}})
	require.ErrorIs(t, err, etcd.ErrProxied)
	require.ErrorContains(t, err, endpoint)
	sess := session(t, newStore(t, c.Client(t), prefix), "a")
	grants := must(through.Renew(ctx, []store.Session{sess}))(t)
	require.ErrorIs(t, grants[0].Err, etcd.ErrProxied)
	require.NotErrorIs(t, grants[0].Err, store.ErrSessionGone)
	require.Zero(t, grants[0].TTL)
}

// grpcProxy runs etcd's own grpc-proxy before a cluster and returns where it listens.
func grpcProxy(t *testing.T, c *etcdtest.Cluster) (endpoint string) {
	t.Helper()
	etcd := must(etcdtest.Binary(t.Context()))(t)
	var p *child.Process
	eventually(t, soon, "it listens", func() bool {
		if p == nil || p.Exited() { // another process may have had its port
			ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
			endpoint = ln.Addr().String()
			require.NoError(t, ln.Close())
			cmd := exec.Command(etcd, "grpc-proxy", "start", "--listen-addr="+endpoint, "--advertise-client-url="+endpoint,
				"--endpoints="+strings.Join(c.Endpoints(), ","))
			cmd.Dir = t.TempDir()
			started := must(child.Start(cmd))(t)
			t.Cleanup(func() { require.NoError(t, started.Kill()) })
			p = started
		}
		conn, err := net.Dial("tcp", endpoint)
		return err == nil && conn.Close() == nil
	})
	return endpoint
}

// TestOutage: one server is restarted, stopped for longer than a TTL, and away
// for many TTLs. No holder believes beyond its deadline, no client's goroutines
// pile up, and every name is held again soon after, by the clients that were there
// before.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	m := c.Members()[0]
	labelled.Do(t.Context(), t.Name(), func(context.Context) {
		prefix := fresh()
		names := map[string]time.Duration{"long/1": 0, "long/2": 0, "short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}
		var nodes []*node
		for i := range 3 {
			nodes = append(nodes, newNode(t, c.Client(t), prefix, fmt.Sprintf("node-%d", i), ttl))
		}
		var j journal
		stop := j.group(t, nodes, names)
		j.held(t, now(), names)

		outage := func(name string, lasts time.Duration, begin, end func() error) {
			require.NoError(t, begin())
			began := now()
			most := map[bool]int{} // goroutines, in the first half and in the second
			for now() < began+lasts {
				late := now() > began+lasts/2
				most[late] = max(most[late], labelled.Count(t.Name()))
				time.Sleep(100 * time.Millisecond) // counting is costly
			}
			ending := now() // it may answer from here on
			require.NoError(t, end())
			back := now()
			took := j.held(t, back, names)
			if ending > began+trust {
				j.silent(t, began+trust, ending)
			}
			if lasts > 0 {
				require.LessOrEqual(t, most[true], most[false]+30, "goroutines pile up")
			}
			t.Logf("%s: back after %v, all held %v later; %d lost; goroutines %d, then %d",
				name, (back - began).Round(time.Millisecond), took.Round(time.Millisecond), j.lost(began), most[false], most[true])
			j.check(t)
		}
		restart := func() error { return m.Restart(t.Context()) }
		before := labelled.Count(t.Name())
		outage("restart", 0, m.Kill, restart)
		outage("stopped", ttl*3/2, func() error { return m.Stop(t.Context()) }, m.Cont)
		outage("killed", 3*ttl, m.Kill, restart)
		eventually(t, soon, "goroutines are as many as before", func() bool { return labelled.Count(t.Name()) <= before+15 })
		stop()
		j.check(t)
	})
}

const (
	// ttl is of holders that lose what they hold, or may; of all others it is lasting.
	ttl = 6 * time.Second
	// trust is how long a holder believes after it sent its last renewal that
	// succeeded: the TTL less the default margin.
	trust = ttl - ttl/10
	// soon bounds, generously, how long things take on a machine that is busy. How
	// long they may take is asserted on fake time, and measured by lab/leases.
	soon = 30 * time.Second
)

// now is the clock that every Keeper of this process goes by.
func now() time.Duration { return store.SystemClock().Now().Mono }

// node is a Keeper over a store of its own.
type node struct {
	id     string
	store  *etcd.Store
	keeper *lease.Keeper
}

func newNode(t *testing.T, client *clientv3.Client, prefix, id string, ttl time.Duration) *node {
	t.Helper()
	n := &node{id: id, store: newStore(t, client, prefix)}
	k := must(lease.NewKeeper(n.store, lease.Config{ID: id, TTL: ttl}))(t)
	n.keeper = k
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := k.Close(ctx); err != nil {
			t.Logf("closing %s: %v", id, err)
		}
	})
	return n
}

func (n *node) lease(t *testing.T, name string, opts ...lease.Option) *lease.Handle {
	t.Helper()
	h := must(n.keeper.Lease(name, opts...))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Logf("closing: %v", err)
		}
	})
	return h
}

// tenure is one term as its holder saw it: alive at first, at last, and whenever
// it looked between. The times are those that the checks went by.
type tenure struct {
	name, node  string
	token       store.Token
	first, last time.Duration
	lost        bool // it ended against its holder's will
	robbed      bool // the store took its record away
}

// journal collects tenures of all nodes of one test.
type journal struct {
	mu   sync.Mutex
	list []*tenure
	// resumed is when a stopped leader of etcd was continued. Such a one may revoke
	// leases that its successor has renewed since (docs/etcd.md): the store's doing,
	// against which a holder can only be told.
	resumed []time.Duration
}

// mayRob excuses what etcd takes away soon after now.
func (j *journal) mayRob() { j.resumed = append(j.resumed, now()) }

// robbedBy reports whether e lost its record to a leader that was continued.
func (j *journal) robbedBy(e tenure) bool {
	return e.robbed && slices.ContainsFunc(j.resumed, func(at time.Duration) bool { return e.last > at && e.last < at+ttl })
}

// contend wants name, on n, until ctx ends: it holds it for a while (0: as long as
// it can), journals, gives it back, and wants it again.
func (j *journal) contend(ctx context.Context, n *node, h *lease.Handle, hold time.Duration) {
	for ctx.Err() == nil {
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			j.follow(ctx, n.id, t, hold)
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return
		}
	}
}

func (j *journal) follow(ctx context.Context, node string, t lease.Term, hold time.Duration) {
	at, alive := t.Check()
	if !alive {
		return
	}
	e := &tenure{name: t.Name(), node: node, token: t.Token(), first: at, last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.first+hold) {
		time.Sleep(2 * time.Millisecond)
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.last = at
			j.mu.Unlock()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e.lost = !alive
	e.robbed = !alive && errors.Is(context.Cause(t.Context()), lease.ErrRecordGone)
}

// group starts contenders for every name on every node and returns how to end
// them all, which also ends with the test.
func (j *journal) group(t *testing.T, nodes []*node, names map[string]time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for name, hold := range names {
		for _, n := range nodes {
			h := n.lease(t, name)
			wg.Go(func() { j.contend(ctx, n, h, hold) })
		}
	}
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	return list
}

// check fails the test unless, for every name, each tenure was over before one
// with a higher token began.
func (j *journal) check(t *testing.T) {
	t.Helper()
	list := j.all()
	require.NotEmpty(t, list)
	slices.SortFunc(list, func(a, b tenure) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.token, b.token))
	})
	for i, b := range list[1:] {
		if a := list[i]; a.name == b.name {
			if a.token == b.token {
				tier.Unsafe(t, "one token was issued twice: %+v, %+v", a, b)
			}
			if a.last >= b.first && j.robbedBy(a) {
				t.Logf("etcd gave a renewed lease away: %+v, %+v", a, b)
				require.Less(t, a.last-b.first, time.Second, "and its holder was not told: %+v, %+v", a, b)
				continue
			}
			if a.last >= b.first {
				tier.Unsafe(t, "two believed at once: %+v, %+v", a, b)
			}
		}
	}
}

// silent fails the test if anybody believed between from and to.
func (j *journal) silent(t *testing.T, from, to time.Duration) {
	t.Helper()
	for _, e := range j.all() {
		if e.last > from && e.first < to {
			tier.Unsafe(t, "believed though it could not know, from %v to %v: %+v", from, to, e)
		}
	}
}

// held waits until every name was believed to be held after since, and returns
// how long after since that was.
func (j *journal) held(t *testing.T, since time.Duration, names map[string]time.Duration) time.Duration {
	t.Helper()
	seen := map[string]time.Duration{}
	eventually(t, soon, "all names held", func() bool {
		clear(seen)
		for _, e := range j.all() {
			if at := max(e.first, since+1); e.last > since && (seen[e.name] == 0 || at < seen[e.name]) {
				seen[e.name] = at
			}
		}
		return len(seen) == len(names)
	})
	var took time.Duration
	for _, at := range seen {
		took = max(took, at-since)
	}
	return took
}

// by waits for a tenure of node that began after since.
func (j *journal) by(t *testing.T, node string, since time.Duration) tenure {
	t.Helper()
	var found tenure
	eventually(t, soon, node+" holds it", func() bool {
		for _, e := range j.all() {
			if e.node == node && e.first > since {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// lost counts tenures that ended against their holder's will since then.
func (j *journal) lost(since time.Duration) int {
	n := 0
	for _, e := range j.all() {
		if e.last > since && e.lost {
			n++
		}
	}
	return n
}

// TestWatchOverCompaction: a watch that was interrupted while its history was
// compacted ends and says so, in place of leaving out what happened; the next one
// has it all, and a Keeper's stream of records goes on by itself.
func TestWatchOverCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t) // compacting disturbs watches of others
	route := must(c.NewRoute())(t)
	prefix := fresh()
	direct := newStore(t, c.Client(t), prefix)
	broken := newNode(t, route.Client(t), prefix, "watcher", ttl)
	sess := session(t, direct, "a")
	first := win(t, direct, sess, "w/0")

	var mu sync.Mutex
	follows, ended, synced := map[string]store.Token{}, make(chan error, 2), make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, deletions := range []bool{false, true} {
		go func() {
			for ev, err := range broken.store.Watch(ctx, store.Scope{Prefix: "w/", Deletions: deletions}) {
				if err != nil {
					ended <- err
					return
				}
				if ev.Kind == store.EventSynced {
					synced <- struct{}{}
				}
			}
		}()
	}
	stop, err := broken.keeper.Watch("w/", func(ev store.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch ev.Kind {
		case store.EventPut:
			follows[ev.Record.Name] = ev.Record.Token
		case store.EventDelete:
			delete(follows, ev.Record.Name)
		}
	})
	require.NoError(t, err)
	defer stop()
	<-synced
	<-synced
	knows := func(want map[string]store.Token) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(follows) == fmt.Sprint(want)
		}
	}
	eventually(t, soon, "the snapshot", knows(map[string]store.Token{"w/0": first.Token}))

	route.Refuse()
	outs := must(direct.Release(ctx, []store.Held{first.Held()}))(t)
	require.True(t, outs[0].OK)
	want := map[string]store.Token{}
	for i := range 5 {
		name := fmt.Sprintf("w/%d", i+1)
		want[name] = win(t, direct, sess, name).Token
	}
	compact(t, c.Client(t))
	route.Heal()
	healed := now()
	for range 2 {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, rpctypes.ErrCompacted)
		case <-time.After(soon):
			t.Fatal("a watch went on over a gap")
		}
	}
	again := map[string]store.Token{}
	for ev, err := range broken.store.Watch(ctx, store.Scope{Prefix: "w/"}) {
		require.NoError(t, err)
		if ev.Kind == store.EventSynced {
			break
		}
		again[ev.Record.Name] = ev.Record.Token
	}
	require.Equal(t, want, again)
	eventually(t, soon, "the Keeper's stream has caught up", knows(want))
	t.Logf("followed again %v after the link was healed", now()-healed)
}

// TestHolderBehindABrokenLink: a holder whose way to etcd breaks stops believing
// by its own clock before anybody else holds the name, and is back in business
// when the link is, with the same client.
func TestHolderBehindABrokenLink(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, fault := range []struct {
		name  string
		apply func(*etcdtest.Route)
	}{
		{"cut", (*etcdtest.Route).Cut},
		{"replies cut", (*etcdtest.Route).CutReplies}, // its renewals land for as long as it believes
		{"refused", (*etcdtest.Route).Refuse},
		{"slower than any attempt", func(r *etcdtest.Route) { r.Delay(ttl) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			route := must(c.NewRoute())(t)
			prefix, name := fresh(), map[string]time.Duration{"job": 0}
			a := newNode(t, route.Client(t), prefix, "a", ttl)
			b := newNode(t, c.Client(t), prefix, "b", ttl)
			var j journal
			stopA := j.group(t, []*node{a}, name)
			j.by(t, "a", 0)
			stopB := j.group(t, []*node{b}, name)

			broken := now()
			fault.apply(route)
			broken = max(broken, now()) // what was sent before may have been answered
			taken := j.by(t, "b", broken)
			for _, e := range j.all() {
				if e.node == "a" {
					require.LessOrEqual(t, e.last, broken+trust, "believed beyond its deadline")
				}
			}
			t.Logf("another held the name %v after the fault", taken.first-broken)

			route.Heal()
			healed := now()
			stopB()
			back := j.by(t, "a", healed)
			t.Logf("held it again %v after the link was healed", back.first-healed)
			stopA()
			j.check(t)
		})
	}
}
