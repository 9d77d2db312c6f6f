//go:build unix

package kubetest

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
	"time"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Version is the kube-apiserver that Binary builds.
const Version = "v1.36.3"

// The module that names the server and everything it is built from. Its replace directives stand for
// those of k8s.io/kubernetes, which lead to folders that its module does not have.
var (
	//go:embed build/go.mod.txt
	buildMod []byte
	//go:embed build/go.sum.txt
	buildSum []byte
)

// Binary returns the path of a kube-apiserver that runs: the one HOLDFAST_APISERVER_BIN names, or
// Version, built on first use and kept in the user's cache directory. Any number of processes may call
// it at once: one builds, the others wait until it is done or their ctx is.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv("HOLDFAST_APISERVER_BIN"); path != "" {
		if _, err := versionOf(ctx, path); err != nil {
			return "", fmt.Errorf("kubetest: HOLDFAST_APISERVER_BIN: %w", err)
		}
		return filepath.Abs(path)
	}
	path, err := cached(ctx)
	if err != nil {
		return "", fmt.Errorf("kubetest: kube-apiserver %s: %w", Version, err)
	}
	return path, nil
}

// cached returns the binary in the cache, and builds it if there is none that runs. What it is built
// from is in the path, so another version is another file.
func cached(ctx context.Context) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, part := range []string{string(buildMod), string(buildSum), runtime.GOOS, runtime.GOARCH, runtime.Version()} {
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	dir := filepath.Join(base, "holdfast-kube-apiserver", fmt.Sprintf("%s-%x", Version, h.Sum(nil)[:8]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kube-apiserver")
	if v, err := versionOf(ctx, path); err == nil && v == Version {
		return path, nil
	}
	lock, err := servertest.LockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for another process that builds it: %w", err)
	}
	defer lock.Close()
	if v, err := versionOf(ctx, path); err == nil && v == Version { // another process built it meanwhile
		return path, nil
	}
	return path, build(ctx, path)
}

// build compiles the server and moves it to path once it has been seen running.
func build(ctx context.Context, path string) error {
	src, err := os.MkdirTemp("", "holdfast-kube-apiserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	if err := errors.Join(
		os.WriteFile(filepath.Join(src, "go.mod"), buildMod, 0o600),
		os.WriteFile(filepath.Join(src, "go.sum"), buildSum, 0o600)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "kubetest: building kube-apiserver %s into %s (once; takes some minutes)\n", Version, path)
	fresh := path + ".new"
	defer os.Remove(fresh)
	const set = " -X k8s.io/component-base/version."
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-p=1", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w"+set+"gitVersion="+Version+set+"gitMajor=1"+set+"gitMinor=36",
		"-o", fresh, "k8s.io/kubernetes/cmd/kube-apiserver")
	cmd.Dir = src
	// The user's settings must not change what is built.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "PWD="+src)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build (or set HOLDFAST_APISERVER_BIN): %w\n%s", errors.Join(err, ctx.Err()), bytes.TrimSpace(out))
	}
	if v, err := versionOf(ctx, fresh); err != nil || v != Version {
		return fmt.Errorf("built %q: %w", v, err)
	}
	return os.Rename(fresh, path)
}

// versionOf runs the binary and returns what it says its version is.
func versionOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	v, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if err != nil || !ok {
		return "", fmt.Errorf("%s --version: %w: %.200q", path, errors.Join(err, ctx.Err()), out)
	}
	return v, nil
}
