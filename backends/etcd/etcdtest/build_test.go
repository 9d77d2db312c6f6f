//go:build unix

package etcdtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// One build serves all who ask at once, replaces a file that does not run, is kept, and depends on no
// setting of go in the environment.
func TestConcurrentCallersShareOneBuild(t *testing.T) {
	t.Setenv("HOLDFAST_ETCD_BIN", "")
	t.Setenv("GOFLAGS", "-no-such-flag=1")
	t.Setenv("GOOS", "plan9")
	kept := must(Binary(t.Context()))(t)
	root := t.TempDir()
	path := filepath.Join(root, filepath.Base(filepath.Dir(kept)), "etcd")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("torn"), 0o700))

	const callers = 4
	files := make([]os.FileInfo, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			process := newBuild()
			process.Cache = root
			var got string
			if got, errs[i] = process.Binary(t.Context()); errs[i] == nil {
				files[i], errs[i] = os.Stat(got)
			}
		})
	}
	all.Wait()
	for i := range callers {
		require.NoError(t, errs[i])
		require.True(t, os.SameFile(files[0], files[i]), "more than one build")
	}
	left := must(filepath.Glob(filepath.Join(filepath.Dir(path), "*")))(t)
	require.Equal(t, []string{path, filepath.Join(filepath.Dir(path), "lock")}, left)
}

func TestWaitingForAnotherBuildEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held := must(servertest.LockFile(t.Context(), path))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := servertest.LockFile(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, held.Close())
	again := must(servertest.LockFile(t.Context(), path))(t)
	require.NoError(t, again.Close())
}

func TestBinaryOfTheUsersChoice(t *testing.T) {
	own := must(Binary(t.Context()))(t)
	copied := filepath.Join(t.TempDir(), "my-etcd")
	require.NoError(t, os.Symlink(own, copied))
	t.Setenv("HOLDFAST_ETCD_BIN", copied)
	got := must(Binary(t.Context()))(t)
	require.Equal(t, copied, got)

	no, err := exec.LookPath("true")
	require.NoError(t, err)
	for _, bad := range []string{no, filepath.Join(t.TempDir(), "absent")} {
		t.Setenv("HOLDFAST_ETCD_BIN", bad)
		_, err = Binary(t.Context())
		require.ErrorContains(t, err, "HOLDFAST_ETCD_BIN")
		require.ErrorContains(t, err, bad)
	}
}

func TestBuildThatFailsSaysWhy(t *testing.T) {
	t.Setenv("HOLDFAST_ETCD_BIN", "")
	b := newBuild()
	b.Cache = t.TempDir()
	wrong := "go.etcd.io/etcd/server/v3 " + Version + " h1:" + strings.Repeat("A", 43) + "="
	b.Sum = regexp.MustCompile(`(?m)^go\.etcd\.io/etcd/server/v3 v\S+ h1:\S+$`).ReplaceAll(buildSum, []byte(wrong))
	require.NotEqual(t, string(buildSum), string(b.Sum))
	_, err := b.Binary(t.Context())
	require.ErrorContains(t, err, `"go" "build"`)
	require.ErrorContains(t, err, "checksum mismatch") // what makes the build reproducible
	left := must(filepath.Glob(filepath.Join(b.Cache, "*", "etcd*")))(t)
	require.Empty(t, left)
}
