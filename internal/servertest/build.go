//go:build unix

package servertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Build is a server that is built from source, once on a machine.
type Build struct {
	Kit, Server, Version string
	Env                  string   // the variable that names a binary to run instead
	Says                 string   // how --version begins, before the version
	Mod, Sum             []byte   // the module that names Package and everything it is built from
	Command              []string // go build, with flags
	Package              string
	Cache                string // where the binary is kept; "": in the user's cache directory

	built atomic.Pointer[string] // the binary this process has seen running
}

// Binary returns the path of a server that runs: the one Env names, or Version, built on first use and
// kept. Any number of processes may call it at once: one builds, the others wait until it is done or
// their ctx is.
func (b *Build) Binary(ctx context.Context) (path string, err error) {
	if path = os.Getenv(b.Env); path != "" {
		if path, err = filepath.Abs(path); err == nil {
			_, err = b.version(ctx, path)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", b.Kit, b.Env, err)
		}
		return path, nil
	}
	if p := b.built.Load(); p != nil {
		return *p, nil
	}
	if path, err = b.cached(ctx); err != nil {
		return "", fmt.Errorf("%s: %s %s (or set %s): %w", b.Kit, b.Server, b.Version, b.Env, err)
	}
	b.built.Store(&path)
	return path, nil
}

// cached returns the binary in the cache, and builds it if there is none that runs: a torn file counts
// as none. What it is built from is in the path, so another version is another file.
func (b *Build) cached(ctx context.Context) (string, error) {
	root := b.Cache
	if root == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		root = filepath.Join(base, "holdfast-"+b.Server)
	}
	h := sha256.New()
	for _, part := range []string{string(b.Mod), string(b.Sum), runtime.GOOS, runtime.GOARCH, runtime.Version()} {
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	dir := filepath.Join(root, fmt.Sprintf("%s-%x", b.Version, h.Sum(nil)[:8]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, b.Server)
	if v, err := b.version(ctx, path); err == nil && v == b.Version {
		return path, nil
	}
	lock, err := LockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for another process that builds it: %w", err)
	}
	defer lock.Close()
	if v, err := b.version(ctx, path); err == nil && v == b.Version { // another process built it meanwhile
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "%s: building %s %s into %s (once; takes a minute or some)\n", b.Kit, b.Server, b.Version, path)
	fresh := path + ".new"
	defer os.Remove(fresh)
	err = RunGo(ctx, b.Mod, b.Sum, append(b.Command[:len(b.Command):len(b.Command)], "-o", fresh, b.Package)...)
	if err != nil {
		return "", err
	}
	if v, err := b.version(ctx, fresh); err != nil || v != b.Version {
		return "", errors.Join(err, fmt.Errorf("built %q", v))
	}
	return path, os.Rename(fresh, path)
}

// version runs the binary and returns what it says its version is.
func (b *Build) version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	v, ok := strings.CutPrefix(first, b.Says)
	if err != nil || !ok {
		return "", errors.Join(fmt.Errorf("%s --version says %.200q, not %q", path, out, b.Says), err, ctx.Err())
	}
	return "v" + strings.TrimPrefix(strings.TrimSpace(v), "v"), nil
}

// RunGo runs a go command that does not change modules, in the module of mod and sum. The user's
// settings don't count: flags, a workspace, the target of a cross-compilation, a missing C compiler.
// An error has what it printed.
func RunGo(ctx context.Context, mod, sum []byte, command ...string) error {
	src, err := os.MkdirTemp("", "holdfast-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	if err := errors.Join(
		os.WriteFile(filepath.Join(src, "go.mod"), mod, 0o600),
		os.WriteFile(filepath.Join(src, "go.sum"), sum, 0o600)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.WaitDelay = src, 5*time.Second
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "PWD="+src)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", command, errors.Join(err, ctx.Err()), bytes.TrimSpace(out))
	}
	return nil
}
