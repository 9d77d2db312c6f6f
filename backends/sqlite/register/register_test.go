//go:build linux

package register_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/open"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestURLs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for url, path := range map[string]string{
		"sqlite:a.db":               "a.db",
		"sqlite:" + dir + "/b.db":   "b.db",
		"sqlite://" + dir + "/c.db": "c.db",
		"sqlite:d%20e%3Ff%23.db":    "d e?f#.db",
	} {
		store, closeStore, err := open.Open(t.Context(), url)
		require.NoError(t, err, url)
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
		"sqlite:":         "must be a path",
		"sqlite://":       "is a host",
		"sqlite://host/a": "is a host",
		"sqlite:a%zz":     "must be a path",
		"sqlite:a?x=1":    "no settings",
		"sqlite:a#b":      "no settings",
		"sqlite::memory:": "or a URI",
	} {
		db, _, err := open.Open(t.Context(), url)
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.ErrorContains(t, err, says, url)
		require.Nil(t, db, url)
	}
}
