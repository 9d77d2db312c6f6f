//go:build unix

package postgrestest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// holdEnv makes the test binary run a server, print where it is and wait to be killed: what a test
// process does that never comes to its cleanups.
const holdEnv = "POSTGRESTEST_HOLD"

func TestMain(m *testing.M) {
	if how := os.Getenv(holdEnv); how != "" {
		s, err := Run(context.Background(), Options{})
		if err == nil && how == "paused" {
			err = s.Pause()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.proc.Pid(), s.g.Temp)
		select {}
	}
	goleak.VerifyTestMain(m)
}

// one asks for a single value through a connection of its own.
func one[T any](t *testing.T, url, query string) (v T) {
	t.Helper()
	conn := must(pgx.Connect(t.Context(), url))(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&v))
	return v
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
