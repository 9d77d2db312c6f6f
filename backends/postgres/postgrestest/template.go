//go:build unix

package postgrestest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// A fresh database directory is what initdb makes. That takes seconds, so it is done once on a
// machine and copied from then on.

var initArgs = []string{"--username=" + Superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync",
	"--no-instructions"}

// template returns the directory that is copied. Processes that come at once wait for the one that
// makes it.
func template(ctx context.Context, p programs, a account) (string, error) {
	version, err := exec.CommandContext(ctx, p.path("postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", p.path("postgres"), err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n%s", p.dir, version, initArgs, runtime.GOARCH)
	base := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-postgres-%d", os.Getuid()))
	if err := ownDir(base); err != nil {
		return "", err
	}
	dir := filepath.Join(base, fmt.Sprintf("%x", h.Sum(nil)[:8]))
	lock, err := servertest.LockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("waiting for another process that runs initdb: %w", err)
	}
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return dir, nil
	}
	work, err := a.tempDir()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	fresh := filepath.Join(work, "data")
	cmd := a.command(work, p.path("initdb"), append([]string{"--pgdata=" + fresh}, initArgs...)...)
	if out, err := run(ctx, cmd); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	half := dir + ".new"
	err = errors.Join(os.RemoveAll(half), copyTree(half, fresh, account{}), os.RemoveAll(dir))
	if err != nil {
		return "", err
	}
	return dir, os.Rename(half, dir)
}

// ownDir makes a directory of this user's own, under a name that others can guess.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of this user alone", dir)
	}
	return nil
}

// copyTree copies directories and files, and gives them to the account.
func copyTree(to, from string, a account) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return a.mkdir(target)
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no file", path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(target, data, 0o600), a.give(target))
	})
}

// tempDir makes a directory that the account can reach and that belongs to it.
func (a account) tempDir() (string, error) {
	dir, err := servertest.TempDir("postgrestest-", a.reaches)
	if err != nil {
		return "", err
	}
	return dir, a.give(dir)
}

// run runs a program to its end, which comes with ctx at the latest.
func run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	return out.Bytes(), err
}
