//go:build linux

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// What may not be written says so, and that it is for the operator to change.
func TestAFileThatMayNotBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		again(t) // root may write everything
		return
	}
	ctx := context.Background()
	path := file(t)
	s := must(New(ctx, path))(t)
	sess := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, sess, "job")
	require.NoError(t, s.Close())

	require.NoError(t, os.Chmod(path, 0o400)) // the file
	_, err := New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "readonly")
	require.NoError(t, os.Chmod(path, 0o600))

	dir := filepath.Dir(path)
	require.NoError(t, os.Chmod(dir, 0o500)) // the folder: SQLite needs its companions there
	_, err = New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied, "%v", err)
	_, err = New(ctx, filepath.Join(dir, "new.db"))
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorIs(t, err, os.ErrPermission)
	require.NoError(t, os.Chmod(dir, 0o700))

	require.NoError(t, os.Chmod(path, 0o000)) // anything
	_, err = New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied)
	companions := must(filepath.Glob(path + "*"))(t) // SQLite made them as the file then was
	for _, c := range companions {
		require.NoError(t, os.Chmod(c, 0o600))
	}
	s = openAt(t, path)
	win(t, s, open(t, s, 2, owner("b"), time.Minute), "other")
}

// A full disk is an error of what does not fit; nothing of that was applied, what is held can be
// read, and when there is room again all goes on.
func TestAFullDisk(t *testing.T) {
	dir := mounted(t, "1m")
	ctx := context.Background()
	s := openAt(t, filepath.Join(dir, "leases.db"))
	sess := open(t, s, 1, owner("a"), time.Minute)
	first := win(t, s, sess, "job")

	var full error
	for i := 0; full == nil; i++ {
		require.Less(t, i, 10_000)
		out, err := s.Acquire(ctx, sess, []store.Claim{{Name: fmt.Sprintf("more/%d", i), Nonce: 1, Metadata: map[string]string{"x": strings.Repeat("x", 10_000)}}})
		if full = err; err == nil {
			require.True(t, out[0].OK)
			continue
		}
		require.ErrorContains(t, err, "full")
		found := must(s.Get(ctx, "job", fmt.Sprintf("more/%d", i)))(t)
		require.Len(t, found, 1)
		require.Equal(t, first.Token, found[0].Token)
	}
	require.False(t, errors.Is(full, store.ErrSessionGone))
	// Room comes back without an operator, when what was held is released and the log is used anew.
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	last := win(t, s, sess, "again")
	require.Greater(t, last.Token, first.Token)
}

// What a power cut takes away, so all that was written since the last commit that waited for the
// disk, is nothing that counts after the boot: no token is issued again.
func TestAPowerCut(t *testing.T) {
	ctx := context.Background()
	before := clock{boot: "before", now: func() time.Duration { return time.Minute }}
	path := file(t)
	s := must(newStore(ctx, path, before))(t)
	defer func() { require.NoError(t, s.Close()) }()
	s.wall = func() time.Time { return time.Unix(0, 0) } // tokens are by the counter alone
	sess := open(t, s, 1, owner("a"), time.Hour)
	var last store.Record
	var synced int64
	for i := range 20 {
		last = win(t, s, sess, fmt.Sprintf("job/%d", i))
		synced = size(t, path+"-wal")
		for range 3 {
			must(s.Renew(ctx, []store.Session{sess}))(t)
		}
		must(s.Release(ctx, []store.Held{last.Held()}))(t)
	}
	require.Greater(t, size(t, path+"-wal"), synced)
	commits := func() (wait int) {
		require.NoError(t, s.writer.get("PRAGMA synchronous", nil, &wait))
		return wait
	}
	require.Equal(t, 1, commits(), "a release waits for no disk (NORMAL)")
	target := store.Session{ID: 1, Owner: owner("a")}
	last = win(t, s, sess, "moved")
	require.Equal(t, 2, commits(), "what issues a token does (FULL)")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.Equal(t, 1, commits())
	out, err := s.Transfer(ctx, []store.Transfer{{Held: last.Held(), To: store.Offer{
		Name: "moved", Owner: target.Owner, Session: target.ID, TTL: time.Hour, Nonce: 9, Lifetime: time.Hour,
	}}})
	require.NoError(t, err)
	require.True(t, out[0].OK, "%+v", out)
	last = out[0].Record
	require.Equal(t, 2, commits())
	synced = size(t, path+"-wal")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	for cut := synced; cut <= size(t, path+"-wal"); cut += 1500 { // the disk had what was synced, and any part of the rest
		copied := filepath.Join(t.TempDir(), "leases.db")
		duplicate(t, path, copied, size(t, path))
		duplicate(t, path+"-wal", copied+"-wal", cut)
		after, err := newStore(ctx, copied, clock{boot: "after", now: func() time.Duration { return time.Second }})
		require.NoError(t, err)
		after.wall = s.wall
		found := must(after.Get(ctx, last.Name))(t)
		require.Empty(t, found)
		require.Greater(t, win(t, after, open(t, after, 2, owner("b"), time.Minute), last.Name).Token, last.Token)
		require.NoError(t, after.Close())
	}
}

func size(t *testing.T, path string) int64 {
	info := must(os.Stat(path))(t)
	return info.Size()
}

// duplicate copies the first bytes of a file. It is another process that does: to close a file
// of SQLite takes its locks away.
func duplicate(t *testing.T, from, to string, bytes int64) {
	out := must(exec.Command("head", "-c", fmt.Sprint(bytes), from).Output())(t)
	require.NoError(t, os.WriteFile(to, out, 0o600))
}
