//go:build linux

package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/apicheck"
)

const root = "../.."

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	return string(out)
}

// former builds the laboratory as it is at the tag release of repository, and returns the path of the
// program.
func former(t *testing.T, repository, release string) string {
	t.Helper()
	dir := t.TempDir()
	source, archive, program := filepath.Join(dir, "source"), filepath.Join(dir, "source.tar"), filepath.Join(dir, "former")
	require.NoError(t, os.Mkdir(source, 0o755))
	run(t, repository, "git", "archive", "--output="+archive, release)
	run(t, source, "tar", "-xf", archive)
	run(t, source, "go", "build", "-C", "lab", "-trimpath", "-buildvcs=false", "-o", program, ".")
	return program
}

// TestFormerIsTheRelease: with a tag, the former node is that of the tag.
func TestFormerIsTheRelease(t *testing.T) {
	dir := t.TempDir()
	commit := func(version string) {
		t.Helper()
		for file, text := range map[string]string{
			"lab/go.mod":  "module example.com/library\n\ngo 1.26\n",
			"lab/main.go": "package main\n\nfunc main() { print(\"" + version + "\") }\n",
		} {
			path := filepath.Join(dir, filepath.FromSlash(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		run(t, dir, "git", "add", ".")
		run(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", "commit", "-m", version)
	}
	run(t, dir, "git", "init")
	commit("released")
	run(t, dir, "git", "tag", "v0.1.0")
	commit("present")

	release, err := apicheck.LastRelease(dir)
	require.NoError(t, err)
	require.Equal(t, "released", run(t, dir, former(t, dir, release)))
}
