//go:build linux

package compat

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

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

// former builds peer with the library as it is at the tag release of repository, and returns
// the path of the program.
func former(t *testing.T, repository, release string, peer fs.FS) string {
	t.Helper()
	dir := t.TempDir()
	source, archive, program := filepath.Join(dir, "source"), filepath.Join(dir, "source.tar"), filepath.Join(dir, "former")
	require.NoError(t, os.Mkdir(source, 0o755))
	run(t, repository, "git", "archive", "--output="+archive, release)
	run(t, source, "tar", "-xf", archive)
	place := filepath.Join(source, "lab", "compat", "peer")
	require.NoError(t, os.RemoveAll(place))
	require.NoError(t, os.CopyFS(place, peer))
	run(t, source, "go", "build", "-C", "lab", "-trimpath", "-buildvcs=false", "-o", program, "./compat/peer/cmd")
	return program
}

// TestFormerIsTheRelease: with a tag, the former node is this node's source on the tagged
// library.
func TestFormerIsTheRelease(t *testing.T) {
	dir := t.TempDir()
	commit := func(version string) {
		t.Helper()
		for file, text := range map[string]string{
			"go.mod":                      "module example.com/library\n\ngo 1.26\n",
			"library.go":                  "package library\n\nconst Version = \"" + version + "\"\n",
			"lab/compat/peer/cmd/main.go": "package main\n\nfunc main() { println(\"the node of \" + \"" + version + "\") }\n",
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
	program := former(t, dir, release, fstest.MapFS{"cmd/main.go": {Mode: 0o644, Data: []byte(
		"package main\n\nimport \"example.com/library\"\n\nfunc main() { print(library.Version) }\n")}})
	require.Equal(t, "released", run(t, dir, program))
}
