//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Variables of the environment that this package reads.
const (
	skipEnv = "HOLDFAST_SKIP_POSTGRES" // 1: Skip skips
	ciEnv   = "HOLDFAST_CI"            // 1: programs that are missing fail the test
	binEnv  = "HOLDFAST_POSTGRES_BIN"  // the directory with initdb and postgres
)

// ErrMissing says that a program which is needed is not on this machine.
var ErrMissing = errors.New("not installed")

// Skip skips a test whose programs are not on this machine, and says so on standard error; with
// HOLDFAST_CI=1 in the environment it fails the test instead. needs look for what the test needs
// besides the server. It skips as well where HOLDFAST_SKIP_POSTGRES=1 asks for that. Start does so
// itself, for what its options need.
func Skip(tb testing.TB, needs ...func() error) {
	tb.Helper()
	servertest.Skip(tb, "postgrestest", "PostgreSQL", skipEnv, func() error {
		_, err := findPrograms()
		for _, need := range needs {
			err = errors.Join(err, need())
		}
		return err
	})
}

// NeedBouncer is ErrMissing where there is no PgBouncer.
func NeedBouncer() error {
	_, err := findBouncer()
	return err
}

func needFaketime() error {
	if _, err := servertest.FindFaketime(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrMissing)
	}
	return nil
}

// programs is where the server's programs are.
type programs struct{ dir string }

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// findPrograms looks at the environment, in PATH, and where Debian, Fedora and Homebrew put them;
// of several versions it takes the newest.
func findPrograms() (programs, error) {
	var places []string
	if dir := os.Getenv(binEnv); dir != "" {
		places = []string{dir}
	} else {
		if path, err := exec.LookPath("postgres"); err == nil {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				places = append(places, filepath.Dir(real))
			}
		}
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
			"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/pgsql/bin"} {
			found, _ := filepath.Glob(pattern) // the patterns are good
			slices.SortFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
			places = append(places, found...)
		}
	}
	for _, dir := range places {
		p := programs{dir}
		all := true
		for _, name := range []string{"postgres", "initdb", "pg_basebackup"} {
			if info, err := os.Stat(p.path(name)); err != nil || info.IsDir() {
				all = false
			}
		}
		if all {
			return p, nil
		}
	}
	return programs{}, fmt.Errorf("postgres, initdb and pg_basebackup, in PATH, in /usr/lib/postgresql or "+
		"where %s says (Debian: apt-get install postgresql): %w", binEnv, ErrMissing)
}

// versionIn is the number in a path like /usr/lib/postgresql/15/bin.
func versionIn(path string) int {
	v := 0
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r < '0' || r > '9' }) {
		v, _ = strconv.Atoi(part) // too large a number is none
	}
	return v
}

func findBouncer() (string, error) {
	for _, place := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("pgbouncer (Debian: apt-get install pgbouncer): %w", ErrMissing)
}

// account is who runs the servers: PostgreSQL refuses root.
type account struct {
	name       string
	credential *syscall.Credential // nil: this process's own
}

func findAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil || uid == 0 {
			errs = append(errs, fmt.Errorf("user %s: uid %s, gid %s: %w", name, u.Uid, u.Gid, err))
			continue
		}
		return account{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, fmt.Errorf("no user to run PostgreSQL, which refuses root: %w", errors.Join(errs...))
}

// command is a program run as the account, without the user's own settings. It ends with ctx.
func (a account) command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "PWD="+dir, "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	return cmd
}

// give makes the account the owner of a file.
func (a account) give(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// reaches reports whether the account can go through every directory on the way to dir.
func (a account) reaches(dir string) bool {
	if a.credential == nil {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return true
	}
}

// mkdir makes a directory that belongs to the account.
func (a account) mkdir(path string) error {
	return errors.Join(os.MkdirAll(path, 0o700), a.give(path))
}
