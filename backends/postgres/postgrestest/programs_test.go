//go:build unix

package postgrestest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNewestServerIsFound(t *testing.T) {
	require.Equal(t, 15, versionIn("/usr/lib/postgresql/15/bin"))
	require.Equal(t, 9, versionIn("/usr/lib/postgresql/9/bin"))
	dir := t.TempDir()
	t.Setenv(binEnv, dir)
	_, err := findPrograms()
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "apt-get install postgresql")
	for _, name := range []string{"postgres", "initdb", "pg_basebackup"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o700))
	}
	p := must(findPrograms())(t)
	require.Equal(t, dir, p.dir)
}

// Without the programs tests skip, and say so; where all must run they fail.
func TestMissingProgramsSkipOrFail(t *testing.T) {
	if os.Getenv("POSTGRESTEST_INNER") != "" {
		Start(t)
		return
	}
	for _, c := range []struct {
		env  []string
		fail bool
		says string
	}{
		{[]string{binEnv + "=/nonexistent"}, false, "PostgreSQL skipped"},
		{[]string{binEnv + "=/nonexistent", ciEnv + "=1"}, true, "apt-get install postgresql"},
		{[]string{skipEnv + "=1", ciEnv + "=1"}, false, "PostgreSQL skipped (" + skipEnv + " is set)"},
		{[]string{skipEnv + "=perhaps"}, true, "must be 1, 0 or not set"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMissingProgramsSkipOrFail$")
		cmd.Env = append(os.Environ(), ciEnv+"=", skipEnv+"=", "POSTGRESTEST_INNER=1")
		cmd.Env = append(cmd.Env, c.env...)
		out, err := cmd.CombinedOutput()
		require.Equal(t, c.fail, err != nil, "%v: %s", c.env, out)
		require.Contains(t, string(out), c.says, c.env)
	}
}

func TestOthersCannotReachIntoATestsDirectory(t *testing.T) {
	a := must(findAccount())(t)
	require.True(t, a.reaches("/tmp"))
	if a.credential == nil {
		return
	}
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	require.False(t, a.reaches(closed))
	t.Setenv("TMPDIR", closed)
	dir := must(a.tempDir())(t)
	defer os.RemoveAll(dir)
	require.Equal(t, "/tmp", filepath.Dir(dir), "where PostgreSQL can reach it")
}
