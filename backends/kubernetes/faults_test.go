//go:build unix

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// ttl outlasts what the machine makes of a restart.
const ttl = 90 * time.Second

// keeps shows that h holds what it held while fault was, and that it is renewed after that.
func keeps(t *testing.T, h *lease.Handle, fault func()) {
	t.Helper()
	before, ok := h.Term()
	require.True(t, ok)
	fault()
	require.True(t, h.CheckAlive())
	renewed := false
	for end := time.Now().Add(time.Minute); !renewed && time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		renewed = h.Renew(ctx) == nil
		cancel()
	}
	require.True(t, renewed)
	after, ok := h.Term()
	require.True(t, ok)
	require.Equal(t, before.Token(), after.Token(), "one term")
}

// An outage that is shorter than the deadline loses nothing and ends nothing; a waiter behind it wins
// afterwards, under a higher token.
func TestOutages(t *testing.T) {
	nightly(t)
	c := kubetest.Start(t, kubetest.WithServers(2), kubetest.WithEtcdMembers(3))
	ns := namespace(t, c)
	a, b := c.Servers()[0], c.Servers()[1]
	one, two := keeper(t, open(t, a.Config(), ns), ttl), keeper(t, open(t, b.Config(), ns), ttl)
	h := held(t, one, "job")
	waiter := must(two.Lease("job"))(t)
	won := must(waiter.Acquire(t.Context()))(t)
	require.False(t, won)

	keeps(t, h, func() {
		require.NoError(t, a.Kill())
		require.Error(t, h.Renew(t.Context()))
		require.NoError(t, a.Restart(t.Context()))
	})
	keeps(t, h, func() {
		require.NoError(t, a.Stop(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, h.Renew(ctx))
		require.NoError(t, a.Cont())
	})
	keeps(t, h, func() {
		leader := must(c.Etcd().Leader(t.Context()))(t)
		require.NoError(t, leader.Kill())
		_, err := c.Etcd().Leader(t.Context(), leader)
		require.NoError(t, err)
		require.NoError(t, leader.Restart(t.Context()))
	})
	require.NoError(t, b.Kill()) // while the name becomes free
	before, _ := h.Term()
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, b.Restart(t.Context()))
	require.NoError(t, waiter.Wait(t.Context()))
	term := must(waiter.AcquireTerm(t.Context()))(t)
	require.Greater(t, term.Token(), before.Token())
}

// A server that is cut off from etcd says nothing; it does not say what was.
func TestAServerThatIsBehind(t *testing.T) {
	nightly(t)
	c := kubetest.Start(t, kubetest.WithServers(2))
	ns := namespace(t, c)
	a, b := open(t, c.Servers()[0].Config(), ns), open(t, c.Servers()[1].Config(), ns)
	x := session(t, a, time.Hour)
	first := claim(t, a, x, "n")
	require.True(t, first.OK)
	got := must(b.Get(t.Context(), "n"))(t)
	require.Equal(t, first.Record.Token, got[0].Token)
	require.NoError(t, listed(t.Context(), b))

	c.Servers()[1].Etcd().Cut()
	_, err := a.Release(t.Context(), []store.Held{first.Record.Held()})
	require.NoError(t, err)
	second := claim(t, a, x, "n")
	require.True(t, second.OK)
	require.Greater(t, second.Record.Token, first.Record.Token)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = b.Get(ctx, "n")
	require.Error(t, err)
	require.Error(t, listed(ctx, b))
	c.Servers()[1].Etcd().Heal()
	eventually(t, "it says what is", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got, err = b.Get(ctx, "n")
		return err == nil
	})
	require.Equal(t, second.Record.Token, got[0].Token)
}

// One PUT renews a session, however many names are under it. A process to which the API
// answers 429 for a while keeps its leases.
func TestRenewals(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	f := newFront(t, c.Servers()[0].Config())
	s := open(t, f.config(), ns)
	x := session(t, s, time.Hour)
	var claims []store.Claim
	for i := range 50 {
		claims = append(claims, store.Claim{Name: fmt.Sprint("n/", i), Nonce: 1})
	}
	outs := must(s.Acquire(t.Context(), x, claims))(t)
	for _, out := range outs {
		require.True(t, out.OK)
	}
	f.since()
	for range 3 {
		grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
		require.NoError(t, grants[0].Err)
	}
	require.Equal(t, map[string]int{"PUT": 3}, f.since())

	k := keeper(t, s, ttl)
	h := held(t, k, "job")
	keeps(t, h, func() {
		f.answers(status(http.StatusTooManyRequests, "TooManyRequests", ""))
		require.Error(t, h.Renew(t.Context()))
		f.answers(nil)
	})
}

// A token that has expired is a denial, until the file has another.
func TestAnExpiredToken(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	config := c.Servers()[0].Config()
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) { require.NoError(t, os.WriteFile(path, []byte(token), 0o600)) }
	good := config.BearerToken
	write(good)
	config.BearerToken, config.BearerTokenFile = "", path
	h := held(t, keeper(t, open(t, config, ns), ttl), "job")
	expired := c.Servers()[0].Config()
	expired.BearerToken = "expired"
	_, err := open(t, expired, ns).Get(t.Context(), "job")
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "Unauthorized")

	file := c.Servers()[0].Config()
	write("expired")
	file.BearerToken, file.BearerTokenFile = "", path
	s := open(t, file, ns)
	_, err = s.Get(t.Context(), "job")
	require.ErrorIs(t, err, store.ErrDenied)
	write(good)
	eventually(t, "the file is read again", func() bool { _, err := s.Get(t.Context(), "job"); return err == nil })
	keeps(t, h, func() {})
}

// A Lease that is edited by hand gets another version, and so its holder loses it: when it lists what is
// its own. One that is deleted by hand is free, which the watch tells at once.
func TestLeasesChangedByHand(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	const ttl = 10 * time.Second
	k := keeper(t, open(t, c.Servers()[0].Config(), ns), ttl)
	path := func(key string) string { return leasesPath(ns) + "/" + kubernetes.NameOf(key) }
	server := c.Servers()[0]
	for what, change := range map[string]func() error{
		"annotated": func() error {
			return server.Do(t.Context(), http.MethodPatch, path("records/annotated"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}}, nil)
		},
		"deleted": func() error { return server.Do(t.Context(), http.MethodDelete, path("records/deleted"), nil, nil) },
	} {
		h := held(t, k, what)
		term, _ := h.Term()
		require.NoError(t, change())
		<-term.Context().Done()
		require.NotErrorIs(t, context.Cause(term.Context()), context.Canceled)
		again := held(t, k, what+"/other") // the session is the same, and lives on
		require.NoError(t, again.Release(t.Context()))
		require.NoError(t, h.Release(t.Context()))
		after := must(h.AcquireTerm(t.Context()))(t)
		require.Greater(t, after.Token(), term.Token())
	}

	// An elector of client-go, or somebody, wrote over it: it is held by who knows whom, until it is deleted.
	h := held(t, k, "taken")
	require.NoError(t, server.Do(t.Context(), http.MethodPatch, path("records/taken"), map[string]any{"spec": map[string]any{"holderIdentity": "other"}}, nil))
	eventually(t, "it is lost", func() bool { return !h.CheckAlive() })
	require.NoError(t, h.Release(t.Context()))
	_, err := h.AcquireTerm(t.Context())
	require.ErrorIs(t, err, lease.ErrBadRecord)
	require.NoError(t, server.Do(t.Context(), http.MethodDelete, path("records/taken"), nil, nil))
	_, err = h.AcquireTerm(t.Context())
	require.NoError(t, err)

	// A session that is deleted by hand ends what is under it.
	lost, _ := h.Term()
	require.NoError(t, deleteSessions(t, c, ns))
	<-lost.Context().Done()
}

func deleteSessions(t *testing.T, c *kubetest.Cluster, ns string) error {
	return c.Servers()[0].Do(t.Context(), http.MethodDelete, leasesPath(ns)+"?labelSelector=holdfast-go.github.io/kind=sessions", nil, nil)
}

// A Lease that a finalizer keeps is deleted and stands: it holds its name, and a session that is kept so
// is not renewed.
func TestFinalizers(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	s := open(t, c.Servers()[0].Config(), ns)
	x := session(t, s, time.Hour)
	r := claim(t, s, x, "n")
	require.True(t, r.OK)
	finalizers := func(key string, with ...string) {
		t.Helper()
		require.NoError(t, c.Servers()[0].Do(t.Context(), http.MethodPatch, leasesPath(ns)+"/"+kubernetes.NameOf(key),
			map[string]any{"metadata": map[string]any{"finalizers": with}}, nil))
	}
	sessionKey := fmt.Sprint("sessions/", x.ID)
	finalizers(sessionKey, "example.com/kept")
	require.NoError(t, s.CloseSession(t.Context(), x))
	grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
	require.Error(t, grants[0].Err)
	y := session(t, s, time.Hour)
	require.ErrorIs(t, claim(t, s, y, "n").Err, store.ErrBadRecord)
	finalizers(sessionKey)
	require.True(t, claim(t, s, y, "n").OK)
}

// A renewal that lands after its session was ended makes no new Lease, as a PUT without a UID would; a
// write of what stands gives a new version.
func TestLateAndEqualWrites(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	o := open(t, c.Servers()[0].Config(), ns).Objects()
	first, ok, err := o.Put(t.Context(), "sessions/1", []byte("{}"), "")
	require.NoError(t, err)
	require.True(t, ok)
	second, ok, err := o.Put(t.Context(), "sessions/1", []byte("{}"), first)
	require.NoError(t, err)
	require.True(t, ok)
	before, _ := o.Number(first)
	after, _ := o.Number(second)
	require.Greater(t, after, before)
	ok = must(o.Delete(t.Context(), "sessions/1", first))(t)
	require.False(t, ok)
	ok = must(o.Delete(t.Context(), "sessions/1", second))(t)
	require.True(t, ok)
	_, ok, err = o.Put(t.Context(), "sessions/1", []byte("{}"), second)
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = o.Get(t.Context(), "sessions/1")
	require.NoError(t, err)
	require.False(t, ok, "a dead session was revived")
	third, ok, err := o.Put(t.Context(), "sessions/1", []byte("{}"), "")
	require.NoError(t, err)
	require.True(t, ok)
	for _, late := range []string{first, second} {
		_, ok, err = o.Put(t.Context(), "sessions/1", []byte("{}"), late)
		require.NoError(t, err)
		require.False(t, ok)
		ok = must(o.Delete(t.Context(), "sessions/1", late))(t)
		require.False(t, ok)
	}
	require.NotEqual(t, second, third)
}

// An address that leads to an API whose etcd is younger, as after a restore, hands out lower tokens: the
// Store notices with the next write, its Keeper ends all terms, and goes on when that is accepted.
func TestARestoredEtcd(t *testing.T) {
	nightly(t)
	old, young := cluster(t), kubetest.Start(t)
	ns := namespace(t, old)
	for range 200 { // writes that the young one has not seen
		require.NoError(t, old.Servers()[0].Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/"+ns,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"n": fmt.Sprint(ids.Add(1))}}}, nil))
	}
	require.NoError(t, young.AddNamespace(t.Context(), ns))
	f := newFront(t, old.Servers()[0].Config())
	s := open(t, f.config(), ns)
	k := keeper(t, s, 10*time.Second)
	h := held(t, k, "job")
	term, _ := h.Term()
	f.lead(t, young.Servers()[0].Config())
	<-term.Context().Done()
	eventually(t, "it is noticed", func() bool {
		_, err := s.Get(t.Context(), "job")
		if errors.Is(err, store.ErrSetback) {
			require.ErrorContains(t, err, "docs/kubernetes.md")
			return true
		}
		_ = listed(t.Context(), s)
		return false
	})
	require.NoError(t, k.AcceptHistory(t.Context()))
	require.NoError(t, h.Release(t.Context()))
	eventually(t, "leases are to be had", func() bool {
		won, err := h.Acquire(t.Context())
		return err == nil && won
	})
}

// A connection that leads nowhere is given up long before client-go would, whatever time a call has.
func TestASilentConnection(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	route := must(c.Servers()[0].NewRoute())(t)
	s := open(t, route.Config(), ns)
	_, err := s.Get(t.Context(), "n")
	require.NoError(t, err)
	route.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	_, err = s.Get(ctx, "n")
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	require.Less(t, time.Since(began), 30*time.Second)
	route.Heal()
	_, err = s.Get(ctx, "n")
	require.NoError(t, err)
}

// A watch outlives the connections that the server ends, and goes on where it was: it lists once.
func TestAWatchOverManyConnections(t *testing.T) {
	nightly(t)
	c := kubetest.Start(t, kubetest.WithArgs("--min-request-timeout=1"))
	ns := namespace(t, c)
	f := newFront(t, c.Servers()[0].Config())
	watching, writing := open(t, f.config(), ns), open(t, c.Servers()[0].Config(), ns)
	x := session(t, writing, time.Hour)
	connections, lists, changes := 0, 0, 0
	var last store.Token
	for ev, err := range watching.Watch(t.Context(), store.Scope{Prefix: "next"}) {
		require.NoError(t, err)
		if ev.Kind == store.EventPut {
			require.Greater(t, ev.Revision, last)
			last = ev.Revision
			_, err = writing.Release(t.Context(), []store.Held{ev.Record.Held()})
			require.NoError(t, err)
			continue
		}
		require.GreaterOrEqual(t, ev.Revision, last)
		counts := f.since()
		if lists, connections = lists+counts["LIST"], connections+counts["WATCH"]; connections > 4 {
			break
		}
		time.Sleep(200 * time.Millisecond)
		require.True(t, claim(t, writing, x, fmt.Sprint("next/", changes)).OK)
		changes++
	}
	require.Equal(t, 1, lists)
}

// A watch in a quiet namespace says that it runs; one whose connection is silent while something happens
// does not.
func TestAQuietWatch(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	writing := open(t, c.Servers()[0].Config(), ns)
	x := session(t, writing, time.Hour)
	require.True(t, claim(t, writing, x, "a").OK)
	f := newFront(t, c.Servers()[0].Config())
	progress := func() (n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		for ev, err := range open(t, f.config(), ns).Watch(ctx, store.Scope{Progress: time.Second}) {
			switch {
			case err != nil:
				require.Error(t, ctx.Err())
			case ev.Kind == store.EventSynced:
				require.NoError(t, writing.CloseSession(t.Context(), x))
			case ev.Kind == store.EventProgress:
				n++
			}
		}
		return n
	}
	require.Greater(t, progress(), 1)
	x = session(t, writing, time.Hour)
	f.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("watch") {
			return false
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	require.Zero(t, progress())
}
