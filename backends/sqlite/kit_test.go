//go:build linux

package sqlite

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// soon bounds, generously, how long things take on a machine that is busy: what has not happened by
// then hangs.
const soon = 30 * time.Second

// file is a path at which nothing stands.
func file(tb storetest.TB) string { return filepath.Join(tb.TempDir(), "leases.db") }

// openAt opens a Store until the test ends.
func openAt(tb storetest.TB, path string) *Store {
	tb.Helper()
	s := must(New(context.Background(), path))(tb)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func owner(id string) store.Owner { return store.Owner{ID: id, Incarnation: id + "-1"} }

func open(tb testing.TB, s store.Store, id store.SessionID, o store.Owner, ttl time.Duration) store.Session {
	tb.Helper()
	sess := store.Session{ID: id, Owner: o, TTL: ttl}
	grant := must(s.OpenSession(context.Background(), sess))(tb)
	sess.TTL = grant.TTL
	return sess
}

func claim1(tb testing.TB, s store.Store, sess store.Session, c store.Claim) store.Outcome {
	tb.Helper()
	out := must(s.Acquire(context.Background(), sess, []store.Claim{c}))(tb)
	require.Len(tb, out, 1)
	return out[0]
}

func win(tb testing.TB, s store.Store, sess store.Session, name string) store.Record {
	tb.Helper()
	out := claim1(tb, s, sess, store.Claim{Name: name, Nonce: 1})
	require.True(tb, out.OK, "%+v", out)
	return out.Record
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		role()
		return
	}
	goleak.VerifyTestMain(m)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb storetest.TB) T {
	return func(tb storetest.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

// This program again is what runs in a process of its own.

const roleEnv = "HOLDFAST_SQLITE_TEST_ROLE"

var roles = map[string]func(){"work": work, "hold": hold}

// helper starts this program in a role, until the test ends. Its output is read line by line.
func helper(tb testing.TB, role string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = os.Stderr
	stdin := must(cmd.StdinPipe())(tb) // it ends when that does
	out := must(cmd.StdoutPipe())(tb)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() { _ = stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func said(tb testing.TB, out *bufio.Scanner) string {
	tb.Helper()
	require.True(tb, out.Scan(), "the helper said nothing: %v", out.Err())
	return out.Text()
}

// again runs a test once more as a user that may not do everything.
func again(t *testing.T) {
	t.Helper()
	dir := must(os.MkdirTemp("", "hf"))(t)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	exe := must(os.ReadFile(os.Args[0]))(t)
	require.NoError(t, os.WriteFile(dir+"/test", exe, 0o755))
	require.NoError(t, os.Mkdir(dir+"/tmp", 0o777))
	require.NoError(t, os.Chmod(dir+"/tmp", 0o777))
	cmd := exec.Command(dir+"/test", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir + "/tmp"
	cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// mounted is a file system of that size in memory, which must not be in use when the test ends. The
// test is skipped where none can be mounted.
func mounted(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system of a size can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	return dir
}
