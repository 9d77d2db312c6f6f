//go:build unix

package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// conform runs the kit, with clients of each server in turns.
func conform(t *testing.T, c *kubetest.Cluster, more ...storetest.Option) {
	var n atomic.Int64
	fresh := func(tb storetest.TB) (string, func() store.Store) {
		ns := namespace(tb, c)
		return ns, func() store.Store {
			all := c.Servers()
			return open(tb, all[int(n.Add(1))%len(all)].Config(), ns)
		}
	}
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		_, client := fresh(tb)
		return client
	}, append(more,
		storetest.Observed(), storetest.TTL(3*time.Second), storetest.ExpirySlack(6*time.Second),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			ns, client := fresh(tb)
			i := 0
			return client, func(name string) {
				i++
				if err := c.Servers()[0].Do(tb.Context(), http.MethodPost, leasesPath(ns), foreign(name, i), nil); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}))...)
}

// foreign is a Lease under a name that is no record, each i in a way of its own.
func foreign(name string, i int) *coordination.Lease {
	key := "records/" + strings.ReplaceAll(name, "/", "_2f")
	value := `{"v":1,"name":"` + name + `","token":"0","session":"2","life":"3","nonce":"4"}`
	l := kubernetes.LeaseOf(key, []byte(value))
	switch i % 3 {
	case 0:
		l = kubernetes.LeaseOf(key, []byte(`{"v":2,"name":"`+name+`"}`))
	case 1: // an elector of client-go took it
		l.Spec.RenewTime = &meta.MicroTime{Time: time.Now()}
	case 2: // somebody wrote over it
		other := "other"
		l.Spec.HolderIdentity = &other
	}
	return l
}

func TestConformance(t *testing.T) {
	nightly(t)
	c := cluster(t)
	conform(t, c,
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
			route, err := c.Servers()[0].NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			route.Cut()
			return func() store.Store { return open(tb, route.Config(), "none") }
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := kubetest.Start(t)
			ns := namespace(tb, own)
			server := own.Servers()[0]
			return func() store.Store { return open(tb, server.Config(), ns) }, func() {
				if err := server.Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}),
	)
}

// Two servers share an etcd, and each has a cache of its own.
func TestConformanceOnTwoServers(t *testing.T) {
	nightly(t)
	conform(t, kubetest.Start(t, kubetest.WithServers(2)))
}

func TestBadInput(t *testing.T) {
	good := &rest.Config{Host: "http://127.0.0.1:1"}
	for says, call := range map[string]func() (*kubernetes.Store, error){
		"kubernetes.New: config: invalid: nil":        func() (*kubernetes.Store, error) { return kubernetes.New(nil, "app") },
		`kubernetes.New: namespace: invalid: ""`:      func() (*kubernetes.Store, error) { return kubernetes.New(good, "") },
		`kubernetes.New: namespace: invalid: "a/b"`:   func() (*kubernetes.Store, error) { return kubernetes.New(good, "a/b") },
		"kubernetes.New: config: invalid: open /none": func() (*kubernetes.Store, error) { return kubernetes.New(missingCA(), "app") },
	} {
		_, err := call()
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	s := open(t, good, "app")
	require.Equal(t, []string{"127.0.0.1:1"}, s.Limits().Endpoints)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(kubernetes.Store))
}

func missingCA() *rest.Config {
	return &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}
}

// Names of Leases say what they are of, are of a form that the API takes, and are no two names' one.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{
		"records/a", "records/_41", "sessions/a", "records/singleton_2fbilling", "records/singleton_2f_42illing", "records/_c3_a9",
		"records/-", "records/a-", "records/_", "records/_zz", "records/", "", "records/" + strings.Repeat("x", 500), "records/" + strings.Repeat("x", 501),
	} {
		name := kubernetes.NameOf(key)
		require.Regexp(t, `^hf-[a-z0-9-]*-[a-z2-7]{20}$`, name)
		require.LessOrEqual(t, len(name), 253)
		require.NotContains(t, seen, name)
		seen[name] = key
	}
	require.Regexp(t, `^hf-singleton-billing-[a-z2-7]{20}$`, kubernetes.NameOf("records/singleton_2f_42illing"))
	require.Regexp(t, `^hf-sessions-4711-[a-z2-7]{20}$`, kubernetes.NameOf("sessions/4711"))
}

// status is an answer of the API that says no.
func status(code int, reason meta.StatusReason, kind string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(meta.Status{
			TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusFailure, Message: "it said so",
			Reason: reason, Code: int32(code), Details: &meta.StatusDetails{Kind: kind, Name: "x"},
		})
		return true
	}
}

// What the API says is a refusal, a denial, or says nothing; and a request is sent once.
func TestAnswers(t *testing.T) {
	f := newFront(t, nil)
	o := open(t, f.config(), "app").Objects()
	const refused, denied, unknown = "refused", "denied", "unknown"
	for _, c := range []struct {
		code                     int
		reason                   meta.StatusReason
		kind                     string
		get, post, put, deletion string
	}{
		{404, meta.StatusReasonNotFound, "leases", refused, denied, refused, refused},
		{404, meta.StatusReasonNotFound, "namespaces", denied, denied, denied, denied},
		{409, meta.StatusReasonConflict, "leases", unknown, unknown, refused, refused},
		{409, meta.StatusReasonAlreadyExists, "leases", unknown, refused, unknown, unknown},
		{409, meta.StatusReasonConflict, "Lease", unknown, unknown, refused, refused},
		{409, meta.StatusReasonConflict, "resourcequotas", unknown, unknown, unknown, unknown},
		{403, meta.StatusReasonForbidden, "leases", denied, denied, denied, denied},
		{401, meta.StatusReasonUnauthorized, "", denied, denied, denied, denied},
		{429, meta.StatusReasonTooManyRequests, "", unknown, unknown, unknown, unknown},
		{500, meta.StatusReasonInternalError, "", unknown, unknown, unknown, unknown},
		{503, meta.StatusReasonServiceUnavailable, "", unknown, unknown, unknown, unknown},
		{504, meta.StatusReasonTimeout, "leases", unknown, unknown, unknown, unknown},
	} {
		f.answers(status(c.code, c.reason, c.kind))
		check := func(what, want string, ok bool, err error) {
			t.Helper()
			got := unknown
			switch {
			case err == nil:
				got = refused
			case errors.Is(err, store.ErrDenied):
				got = denied
			}
			require.Equal(t, want, got, "%s: %d %s of %s: %v", what, c.code, c.reason, c.kind, err)
			require.False(t, ok)
		}
		_, ok, err := o.Get(t.Context(), "records/a")
		check("get", c.get, ok, err)
		_, ok, err = o.Put(t.Context(), "records/a", nil, "")
		check("post", c.post, ok, err)
		_, ok, err = o.Put(t.Context(), "records/a", nil, "1/x")
		check("put", c.put, ok, err)
		ok, err = o.Delete(t.Context(), "records/a", "1/x")
		check("delete", c.deletion, ok, err)
		require.Equal(t, map[string]int{"GET": 1, "POST": 1, "PUT": 1, "DELETE": 1}, f.since())
	}
}

// A version that is no integer is refused, where it is written and where it is read.
func TestVersionsThatAreNoIntegers(t *testing.T) {
	f := newFront(t, nil)
	s := open(t, f.config(), "app")
	f.answers(func(w http.ResponseWriter, r *http.Request) bool {
		l := kubernetes.LeaseOf("records/a", nil)
		l.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
		l.ResourceVersion, l.UID = "v7", "u"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l)
		return true
	})
	_, _, err := s.Objects().Put(t.Context(), "records/a", nil, "")
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, `resourceVersion "v7" is no positive integer`)
}

// Writes and listings say when versions went back; a read of one object does not.
func TestAHistoryThatWentBack(t *testing.T) {
	f := newFront(t, nil)
	var version atomic.Value
	version.Store("100")
	f.answers(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases") {
			_ = json.NewEncoder(w).Encode(coordination.LeaseList{
				TypeMeta: meta.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
				ListMeta: meta.ListMeta{ResourceVersion: version.Load().(string)},
			})
			return true
		}
		l := kubernetes.LeaseOf("records/a", nil)
		l.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
		l.ResourceVersion, l.UID = version.Load().(string), "u"
		_ = json.NewEncoder(w).Encode(l)
		return true
	})
	s := open(t, f.config(), "app")
	put := func() error {
		_, _, err := s.Objects().Put(t.Context(), "records/a", nil, "")
		return err
	}
	get := func() error { _, _, err := s.Objects().Get(t.Context(), "records/a"); return err }
	require.NoError(t, put())
	require.NoError(t, s.AcceptHistory(t.Context()))
	require.Zero(t, s.Accepted(), "nothing to accept")
	version.Store("90")
	require.NoError(t, get(), "a read of what was written long ago")
	require.ErrorIs(t, put(), store.ErrSetback)
	require.ErrorIs(t, get(), store.ErrSetback)
	version.Store("101")
	require.NoError(t, get(), "tokens are above all that was seen")
	version.Store("95")
	require.NoError(t, get())
	require.ErrorIs(t, listed(t.Context(), s), store.ErrSetback)
	require.NoError(t, s.AcceptHistory(t.Context()))
	require.Equal(t, 1, s.Accepted())
	require.NoError(t, put())
	require.NoError(t, listed(t.Context(), s))
}

func listed(ctx context.Context, s *kubernetes.Store) error {
	for _, err := range s.List(ctx, store.Query{}) {
		if err != nil {
			return err
		}
	}
	return nil
}
