package open_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

func TestMemoryIsOneStorePerName(t *testing.T) {
	ctx := t.Context()
	a, closeA, err := open.Open(ctx, "memory:")
	require.NoError(t, err)
	b, _, err := open.Open(ctx, "memory:")
	require.NoError(t, err)
	c, _, err := open.Open(ctx, "memory:other")
	require.NoError(t, err)
	require.Same(t, a, b)
	require.NotSame(t, a, c)
	require.NoError(t, closeA())
}

func TestBadURLs(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.pem")
	for url, says := range map[string]string{
		"":                                       "without a scheme",
		"localhost":                              "without a scheme",
		"redis://a:1":                            `"redis" is not known`,
		"memory:a/b":                             "letters, digits",
		"memory:" + strings.Repeat("a", 65):      "at most 64",
		"etcd:":                                  "etcd://user:password@host:port",
		"etcd://":                                "each host needs its port",
		"etcd://a":                               "each host needs its port",
		"etcd://a:1,":                            "each host needs its port",
		"etcd://:2379":                           "each host needs its port",
		"etcd://:secret@a:1":                     "each host needs its port",
		"etcd://u:sec/ret@a:1":                   "escaped",
		"etcd://u:12/secret@a:1":                 "escaped",
		"etcd://u:secret#@a:1":                   "escaped",
		"etcd://a:0":                             "1 to 65535",
		"etcd://u%zz:secret@a:1":                 "escaped",
		"etcd://a:1/p?timeout=1s":                `"timeout"`,
		"etcd://a:1/p?ca=x":                      "etcds",
		"etcd://a:1/p#x":                         "escaped",
		"etcd://a:1/%zz":                         "escaped",
		"etcds://a:1?cert=x":                     "need each other",
		"etcds://a:1?ca=":                        "one value",
		"etcds://a:1?ca=x&ca=y":                  "one value",
		"etcds://u:secret@a:1?ca=" + missing:     "certificates",
		"etcd://a:1/" + strings.Repeat("p", 513): "WithPrefix",
		"etcd://u:secret@a:1/p?%zz":              "escaped",
		"etcd://u:secret@" + "[::1:2379/" + "x":  "each host needs its port",
		"etcds://u:secret@a:1?cert=" + missing + "&key=" + missing: "certificates",
	} {
		db, _, err := open.Open(t.Context(), url)
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.Nil(t, db, url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
}

func TestBadInput(t *testing.T) {
	inputtest.Functions(t, map[string]func() error{
		"Open": func() error { _, _, err := open.Open(inputtest.None, "memory:"); return err },
	})
}

func TestEtcdNeedsNoServer(t *testing.T) {
	for _, url := range []string{"etcd://127.0.0.1:1", "etcd://127.0.0.1:1,[::1]:2/services/a/", "etcds://127.0.0.1:1/x?server-name=etcd"} {
		db, closeStore, err := open.Open(t.Context(), url)
		require.NoError(t, err, url)
		require.Implements(t, (*store.Watcher)(nil), db)
		require.NoError(t, closeStore())
	}
}

// A server that takes a connection and says nothing holds up nobody for longer than the
// context: it is its end that ends the opening, and no timeout.
func TestOpeningEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if conn, err := silent.Accept(); err == nil {
			accepted <- conn
			cancel()
		}
	}()
	_, _, err = open.Open(ctx, "etcd://user:secret@"+silent.Addr().String())
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "secret")
	require.NoError(t, (<-accepted).Close())

	// One that was opened in time lives on when its context has ended.
	ctx, cancel = context.WithCancel(t.Context())
	store, closeStore, err := open.Open(ctx, "etcd://"+silent.Addr().String())
	require.NoError(t, err)
	cancel()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = store.Get(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, closeStore())
}

func TestRegister(t *testing.T) {
	opened := ""
	yes := func(_ context.Context, rest string) (store.Store, func() error, error) {
		opened = rest
		return memory.New(), func() error { return nil }, nil
	}
	for _, bad := range []struct {
		scheme string
		o      open.Opener
	}{{"", yes}, {"A", yes}, {"a b", yes}, {"1a", yes}, {"memory", yes}, {"x-nil", nil}} {
		require.ErrorIs(t, open.Register(bad.scheme, bad.o), store.ErrInvalid, bad.scheme)
	}
	require.NoError(t, open.Register("test-yes", yes))
	require.ErrorIs(t, open.Register("test-yes", yes), store.ErrInvalid)
	_, _, err := open.Open(t.Context(), "test-yes://x?y:z")
	require.NoError(t, err)
	require.Equal(t, "//x?y:z", opened)

	away := errors.New("away")
	require.NoError(t, open.Register("test-no", func(context.Context, string) (store.Store, func() error, error) { return nil, nil, away }))
	_, _, err = open.Open(t.Context(), "test-no:")
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "test-no")
}

func Example() {
	store, closeStore, err := open.Open(context.Background(), cmp.Or(os.Getenv("STORE"), "memory:example"))
	if err != nil {
		panic(err)
	}
	defer closeStore()
	_ = store // for lease.NewKeeper
	// Output:
}
