//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// code is the SQLSTATE of an error, or "".
func code(err error) string {
	var e *pgconn.PgError
	errors.As(err, &e)
	if e == nil {
		return ""
	}
	return e.Code
}

func TestSettingsReachNewConnectionsAndNotThisPackages(t *testing.T) {
	s := Start(t)
	for name, value := range map[string]string{
		"default_transaction_read_only": "on",
		"default_transaction_isolation": "serializable",
		"lock_timeout":                  "7ms",
		"statement_timeout":             "500ms",
	} {
		was := one[string](t, s.URL(), "SHOW "+name)
		require.NoError(t, s.Set(t.Context(), name, value))
		require.Equal(t, value, one[string](t, s.URL(), "SHOW "+name))
		require.NoError(t, s.Exec(t.Context(), "CREATE TABLE written (); DROP TABLE written"))
		if name == "statement_timeout" {
			require.NoError(t, s.Exec(t.Context(), "SELECT pg_sleep(0.6)"))
		}
		require.NoError(t, s.Reset(t.Context(), name))
		require.Equal(t, was, one[string](t, s.URL(), "SHOW "+name))
	}
	require.Error(t, s.Set(t.Context(), "x = 1; DROP TABLE y; --", "1"))
	require.ErrorContains(t, s.Set(t.Context(), "no_such_setting", "1"), "unrecognized configuration parameter")
	require.NoError(t, s.Set(t.Context(), "application_name", `it's \ "quoted"`))
	require.NoError(t, s.NewDatabase(t.Context(), "ascii", "ENCODING 'SQL_ASCII' TEMPLATE template0"))
	require.Equal(t, "SQL_ASCII", one[string](t, s.URLOf(Superuser, "ascii"), "SHOW server_encoding"))
}

func TestTerminateBackendsEndsClientsConnections(t *testing.T) {
	s := Start(t)
	conn := must(pgx.Connect(t.Context(), s.URL()))(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	n := must(s.TerminateBackends(t.Context()))(t)
	require.Equal(t, 1, n)
	_, err := conn.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
	require.Contains(t, []string{"57P01", ""}, code(err), err) // none if the client met the closed connection first
	require.True(t, conn.IsClosed())
	require.Equal(t, 1, one[int](t, s.URL(), "SELECT 1"))
}

func TestRoutesBreakApart(t *testing.T) {
	s := Start(t)
	other := must(s.NewRoute())(t)
	s.Cut()
	require.Equal(t, 1, one[int](t, other.URL(), "SELECT 1"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := pgx.Connect(ctx, s.URL())
	require.Error(t, err)
	require.NoError(t, s.Exec(t.Context(), "SELECT 1"), "this package's own")
	s.Heal()
	require.Equal(t, 1, one[int](t, s.URL(), "SELECT 1"))
	other.Refuse()
	_, err = pgx.Connect(t.Context(), other.URL())
	require.Error(t, err)
}

// clockStep is how far a clock that was set may be from what it was set to.
const clockStep = 10 * time.Millisecond

func TestTheClockStepsWhileTheServerRuns(t *testing.T) {
	s := Start(t, WithFaketime())
	conn := must(pgx.Connect(t.Context(), s.URL()))(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond, 0} {
		require.NoError(t, s.SetClock(offset))
		var at time.Time
		before := time.Now()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&at))
		require.WithinRange(t, at.Add(-offset), before.Add(-clockStep), time.Now().Add(clockStep))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, s.Exec(ctx, "SELECT pg_sleep(0.05)"))
	require.ErrorContains(t, (&Server{proc: servertest.Program{Name: "s9"}}).SetClock(0), "Faketime is not set")
}

func TestADiskFillsAndIsFreed(t *testing.T) {
	s := Start(t, WithDisk(256<<20))
	require.NoError(t, s.Exec(t.Context(), "CREATE TABLE filler (b text); ALTER TABLE filler ALTER b SET STORAGE EXTERNAL"))
	require.NoError(t, s.FillDisk(4<<20))
	err := s.Exec(t.Context(), "INSERT INTO filler SELECT repeat('x', 1000000) FROM generate_series(1, 8)")
	require.Equal(t, "53100", code(err), err)
	require.NoError(t, s.FreeDisk())
	require.NoError(t, s.Exec(t.Context(), "INSERT INTO filler SELECT repeat('x', 1000000) FROM generate_series(1, 8)"))
	require.ErrorContains(t, (&Server{proc: servertest.Program{Name: "s9"}}).FillDisk(0), "Disk is not set")
}

func TestStandbysFollowArePromotedAndTakeBackTheOld(t *testing.T) {
	a := Start(t)
	require.NoError(t, a.Exec(t.Context(), "CREATE TABLE kept (n int)"))
	b := must(a.NewStandby(t.Context()))(t)
	require.True(t, one[bool](t, b.URL(), "SELECT pg_is_in_recovery()"))
	require.NoError(t, a.Synchronous(t.Context(), b))
	require.NoError(t, a.Exec(t.Context(), "SET synchronous_commit = on; INSERT INTO kept VALUES (1)"))

	// A synchronous commit waits for the standby; one that need not, does not.
	b.Replication().Cut()
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	require.Error(t, a.Exec(short, "SET synchronous_commit = on; INSERT INTO kept VALUES (2)"))
	require.NoError(t, a.Synchronous(t.Context()))
	require.NoError(t, a.Exec(t.Context(), "SET synchronous_commit = on; INSERT INTO kept VALUES (3)"))

	// What the standby was not sent is lost with its primary.
	require.NoError(t, a.Kill())
	require.NoError(t, b.Promote(t.Context()))
	require.Equal(t, 1, one[int](t, b.URL(), "SELECT count(*) FROM kept"))
	url := ReadWriteURLOf(Superuser, "postgres", a.Route, b.Route)
	require.NoError(t, b.Exec(t.Context(), "INSERT INTO kept VALUES (4)"))
	require.Equal(t, 2, one[int](t, url, "SELECT count(*) FROM kept"))

	// The old one comes back as what it was, and then follows.
	require.NoError(t, a.Restart(t.Context()))
	require.False(t, one[bool](t, a.URL(), "SELECT pg_is_in_recovery()"))
	require.NoError(t, a.Follow(t.Context(), b))
	require.True(t, one[bool](t, a.URL(), "SELECT pg_is_in_recovery()"))
	require.Equal(t, 2, one[int](t, a.URL(), "SELECT count(*) FROM kept"))
	require.NoError(t, b.Synchronous(t.Context(), a))
	require.Equal(t, 2, one[int](t, url, "SELECT count(*) FROM kept"))
	require.Error(t, a.Follow(t.Context(), a))
	require.ErrorContains(t, b.Promote(t.Context()), "recovery is not in progress")
}

func TestBouncerSharesConnectionsBetweenTransactions(t *testing.T) {
	Skip(t, NeedBouncer)
	s := Start(t)
	b := must(s.NewBouncer(t.Context(), map[string]string{"default_pool_size": "1"}, "guest"))(t)
	require.NoError(t, s.Exec(t.Context(), "CREATE ROLE guest LOGIN"))
	connect := func() *pgx.Conn {
		config := must(pgx.ParseConfig(b.URL()))(t)
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	pid := func(conn *pgx.Conn) (n int, err error) {
		err = conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&n)
		return n, err
	}
	one, two := connect(), connect()
	p1 := must(pid(one))(t)
	p2 := must(pid(two))(t)
	require.Equal(t, p1, p2, "not in transaction mode")

	require.NoError(t, b.Kill())
	require.NoError(t, b.Kill(), "again")
	_, err := pid(one)
	require.Error(t, err)
	require.NoError(t, b.Restart(t.Context()))
	three := connect()
	_, err = pid(three)
	require.NoError(t, err)

	guest := must(pgx.Connect(t.Context(), b.URLOf("guest", "postgres")))(t)
	require.NoError(t, guest.Close(t.Context()))
}
