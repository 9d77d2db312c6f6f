//go:build unix

package kubetest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The module that names etcdutl, of the version of etcdtest's etcd, and everything it is built from.
var (
	//go:embed build/etcdutl.mod.txt
	etcdutlMod []byte
	//go:embed build/etcdutl.sum.txt
	etcdutlSum []byte
)

// Etcdutl runs etcdutl, which works on the files of etcds that are down. It is built on first use, in half
// a minute, and the go command keeps it. An error has what it printed.
func Etcdutl(ctx context.Context, args ...string) error {
	src, err := os.MkdirTemp("", "holdfast-etcdutl-")
	if err != nil {
		return fmt.Errorf("kubetest: etcdutl: %w", err)
	}
	defer os.RemoveAll(src)
	if err := errors.Join(
		os.WriteFile(filepath.Join(src, "go.mod"), etcdutlMod, 0o600),
		os.WriteFile(filepath.Join(src, "go.sum"), etcdutlSum, 0o600)); err != nil {
		return fmt.Errorf("kubetest: etcdutl: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"go.etcd.io/etcd/etcdutl/v3"}, args...)...)
	cmd.Dir, cmd.WaitDelay = src, 5*time.Second
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "PWD="+src)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubetest: etcdutl %s: %w\n%s", args, errors.Join(err, ctx.Err()), bytes.TrimSpace(out))
	}
	return nil
}
