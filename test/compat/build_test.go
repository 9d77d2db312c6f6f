//go:build linux

package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// former builds the node with the version that has landed, and returns its path.
func former(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("landed")
	require.NoError(t, err)
	commit := strings.TrimSpace(string(text))
	if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "--verify", "--quiet", commit+"^{commit}").CombinedOutput(); err != nil {
		why := fmt.Sprintf("compat: the former version was not tried: this clone has no commit %.12s (git fetch --unshallow): %v %s", commit, err, out)
		fmt.Fprintln(os.Stderr, why)
		t.Skip(why)
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "source"), filepath.Join(dir, "former")
	require.NoError(t, os.Mkdir(source, 0o755))
	run := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, out)
	}
	archive := filepath.Join(dir, "source.tar")
	run(root, "git", "archive", "--output="+archive, commit)
	run(source, "tar", "-xf", archive)
	place := filepath.Join(source, "test", "compat", "peer")
	require.NoError(t, os.RemoveAll(place))
	require.NoError(t, os.CopyFS(place, os.DirFS("peer")))
	run(source, "go", "build", "-buildvcs=false", "-o", program, "./test/compat/peer/cmd")
	return program
}
