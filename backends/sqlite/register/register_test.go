//go:build linux

package register_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/sqlite"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestURLs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for url, path := range map[string]string{
		"sqlite:a.db":                        "a.db",
		"sqlite:" + dir + "/b.db":            "b.db",
		"sqlite://" + dir + "/c.db?poll=5ms": "c.db",
		"sqlite:d%20e%3Ff%23.db":             "d e?f#.db",
	} {
		store, closeStore, err := open.Open(t.Context(), url)
		require.NoError(t, err, url)
		require.Equal(t, filepath.Join(dir, path), store.(*sqlite.Store).Path())
		require.FileExists(t, filepath.Join(dir, path))
		k, err := lease.NewKeeper(store, lease.Config{ID: "n"})
		require.NoError(t, err)
		l, err := k.Lease("job")
		require.NoError(t, err)
		won, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, k.Close(t.Context()))
		require.NoError(t, closeStore())
	}
}

func TestBadURLs(t *testing.T) {
	for url, says := range map[string]string{
		"sqlite:":                  "must be a path",
		"sqlite://":                "is a host",
		"sqlite://host/a":          "is a host",
		"sqlite:a%zz":              "must be a path",
		"sqlite:a?x=1":             `"x"`,
		"sqlite:a?poll=":           "one duration",
		"sqlite:a?poll=1":          "one duration",
		"sqlite:a?poll=1s&poll=1s": "one duration",
		"sqlite:a?poll=1h":         "1ms to 1s",
		"sqlite:a?%zz":             "no query",
		"sqlite:a#b":               "fragment",
		"sqlite::memory:":          "or a URI",
	} {
		db, _, err := open.Open(t.Context(), url)
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.ErrorContains(t, err, says, url)
		require.Nil(t, db, url)
	}
}
