//go:build unix

package register_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadURLs(t *testing.T) {
	for rest, says := range map[string]string{
		"":                                   "want postgres://",
		"host=db":                            "want postgres://",
		"//u:secret@db/app?holdfast_x=1":     `"holdfast_x": is not known`,
		"//u:secret@db/app?holdfast_listen=": "holdfast_listen: must be true or false",
		"//u:secret@db/app?holdfast_migrate=maybe":                     "must be true or false",
		"//u:secret@db/app?holdfast_schema=a&holdfast_schema=b":        "must have one value",
		"//u:secret@db/app?holdfast_schema=Pg%20x":                     "WithSchema",
		"//u:secret@db/app?sslmode=secret":                             "no connection string",
		"//u:sec/ret@db:port/app":                                      "behind the hosts",
		"//u:secret@db/app?pool_max_conns=secret":                      "no connection string",
		"//u:12/secret@db/app":                                         "behind the hosts",
		"//u:12#secret@db/app":                                         "behind the hosts",
		"//u:12?secret@db/app":                                         "'@' behind '?'",
		"//u:secret@db/app#x":                                          "behind the hosts",
		"//u:secret@db/app?%zz":                                        "no connection string",
		"//u:secret@db/app?sslmode=verify-full&sslrootcert=/no/secret": "no connection string",
	} {
		for _, scheme := range []string{"postgres:", "postgresql:"} {
			_, _, err := open.Open(t.Context(), scheme+rest)
			require.ErrorIs(t, err, store.ErrInvalid, rest)
			require.ErrorContains(t, err, says)
			require.NotContains(t, err.Error(), "secret")
		}
	}
}

// TestOpen: a store by URL alone, with its schema made, keeps leases and tells of them at once.
func TestOpen(t *testing.T) {
	server := postgrestest.Start(t)
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	q := u.Query()
	q.Set("holdfast_schema", "by_url")
	q.Set("pool_max_conns", "3")
	with := func(more ...string) string {
		c := u.Query()
		for k, v := range q {
			c[k] = v
		}
		for _, m := range more {
			c.Set(m, "true")
		}
		x := *u
		x.RawQuery = c.Encode()
		return x.String()
	}
	// Without the schema it opens, and says what is missing.
	s, closeStore, err := open.Open(t.Context(), with())
	require.NoError(t, err)
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.NoError(t, closeStore())

	s, closeStore, err = open.Open(t.Context(), with("holdfast_migrate", "holdfast_listen"))
	require.NoError(t, err)
	other, closeOther, err := open.Open(t.Context(), with())
	require.NoError(t, err)
	a, err := lease.NewKeeper(s, lease.Config{ID: "a"})
	require.NoError(t, err)
	b, err := lease.NewKeeper(other, lease.Config{ID: "b"})
	require.NoError(t, err)
	la, err := a.Lease("job")
	require.NoError(t, err)
	lb, err := b.Lease("job")
	require.NoError(t, err)
	won, err := lb.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	won, err = la.Acquire(t.Context())
	require.NoError(t, err)
	require.False(t, won)
	waited := make(chan error, 1)
	go func() { waited <- la.Wait(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, lb.Release(t.Context()))
	require.NoError(t, <-waited)
	won, err = la.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, la.Release(t.Context()))
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()))
	require.NoError(t, closeStore())
	require.NoError(t, closeOther())

	// No server: what only opens does, what migrates fails.
	require.NoError(t, server.Stop())
	_, closeStore, err = open.Open(t.Context(), with())
	require.NoError(t, err)
	require.NoError(t, closeStore())
	_, _, err = open.Open(t.Context(), with("holdfast_migrate"))
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrInvalid)
}
