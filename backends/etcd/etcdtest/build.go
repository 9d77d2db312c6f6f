//go:build unix

package etcdtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Version is the etcd that Binary builds.
const Version = "v3.7.3"

const serverPackage = "go.etcd.io/etcd/server/v3"

// The module that names the server and everything it is built from. Kept under
// names that the go command doesn't take for a module's: it is not a part of the
// one it stands in, and still has to travel with it.
var (
	//go:embed build/go.mod.txt
	buildMod []byte
	//go:embed build/go.sum.txt
	buildSum []byte
)

// built is the binary this process has seen running.
var built atomic.Pointer[string]

// Binary returns the path of an etcd that runs: the one HOLDFAST_ETCD_BIN names,
// or Version, built on first use and kept in the user's cache directory. Any
// number of processes may call it at once: one builds, the others wait until it
// is done or their ctx is.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv("HOLDFAST_ETCD_BIN"); path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("etcdtest: HOLDFAST_ETCD_BIN: %w", err)
		}
		if _, err := versionOf(ctx, abs); err != nil {
			return "", fmt.Errorf("etcdtest: HOLDFAST_ETCD_BIN: %w", err)
		}
		return abs, nil
	}
	if p := built.Load(); p != nil {
		return *p, nil
	}
	root, err := cacheRoot()
	if err != nil {
		return "", fmt.Errorf("etcdtest: no place for the etcd binary: %w", err)
	}
	path, err := cached(ctx, root)
	if err != nil {
		return "", fmt.Errorf("etcdtest: etcd %s: %w", Version, err)
	}
	built.Store(&path)
	return path, nil
}

// cacheRoot returns a directory of this user's own that can be written to.
func cacheRoot() (string, error) {
	var errs []error
	base, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(base, "holdfast-etcd")
		if err = os.MkdirAll(dir, 0o700); err == nil {
			return dir, nil
		}
	}
	errs = append(errs, err)
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-etcd-%d", os.Getuid()))
	if err = os.MkdirAll(dir, 0o700); err == nil {
		return dir, nil
	}
	return "", errors.Join(append(errs, err)...)
}

// placeOf is where the binary belongs under root. What it is built from is in the
// path, so another version is another file.
func placeOf(root string) string {
	h := sha256.New()
	for _, part := range [][]byte{buildMod, buildSum, []byte(runtime.GOOS), []byte(runtime.GOARCH), []byte(runtime.Version())} {
		fmt.Fprintf(h, "%d\n", len(part))
		h.Write(part)
	}
	return filepath.Join(root, fmt.Sprintf("%s-%x", Version, h.Sum(nil)[:8]), "etcd")
}

// cached returns the binary under root, and builds it if there is none that runs.
func cached(ctx context.Context, root string) (string, error) {
	path := placeOf(root)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if runs(ctx, path) {
		return path, nil
	}
	lock, err := servertest.LockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for another process that builds it: %w", err)
	}
	defer lock.Close()
	if runs(ctx, path) { // another process built it meanwhile
		return path, nil
	}
	return path, build(ctx, path)
}

// build compiles the server and moves it to path once it has been seen running.
func build(ctx context.Context, path string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("building needs the go command (or set HOLDFAST_ETCD_BIN): %w", err)
	}
	src, err := os.MkdirTemp("", "holdfast-etcd-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	err = errors.Join(
		os.WriteFile(filepath.Join(src, "go.mod"), buildMod, 0o600),
		os.WriteFile(filepath.Join(src, "go.sum"), buildSum, 0o600))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "etcdtest: building etcd %s into %s (once; takes about a minute)\n", Version, path)
	fresh := path + ".new"
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, goTool, "build",
		"-mod=readonly", "-trimpath", "-buildvcs=false", "-o", fresh, serverPackage)
	cmd.Dir = src
	// The user's settings must not change what is built: flags, a workspace, the
	// target of a cross-compilation, a missing C compiler.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "PWD="+src)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", errors.Join(err, ctx.Err()), bytes.TrimSpace(out))
	}
	v, err := versionOf(ctx, fresh)
	if err != nil {
		return err
	}
	if v != Version {
		return fmt.Errorf("built %s", v)
	}
	return os.Rename(fresh, path)
}

// runs reports whether path is the etcd we want. One that is there but does not
// run, a torn file for instance, counts as none.
func runs(ctx context.Context, path string) bool {
	v, err := versionOf(ctx, path)
	return err == nil && v == Version
}

// versionOf runs the binary and returns what it says its version is.
func versionOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = etcdEnv()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w\n%s", path, errors.Join(err, ctx.Err()), bytes.TrimSpace(out))
	}
	first, _, _ := strings.Cut(string(out), "\n")
	v, ok := strings.CutPrefix(first, "etcd Version: ")
	if !ok {
		return "", fmt.Errorf("%s is no etcd: --version says %.100q", path, first)
	}
	return "v" + strings.TrimSpace(v), nil
}

// etcdEnv is the environment without what etcd would take for flags.
func etcdEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ETCD_") {
			env = append(env, kv)
		}
	}
	return env
}
