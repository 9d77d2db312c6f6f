//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

// nowhere is a pool that reaches no server.
func nowhere(t *testing.T) *pgxpool.Pool {
	t.Helper()
	p := must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none"))(t)
	t.Cleanup(p.Close)
	return p
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	_, err := postgres.New(nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	p := nowhere(t)
	for says, o := range map[string]postgres.Option{
		`postgres.WithSchema: invalid: ""`:              postgres.WithSchema(""),
		`postgres.WithSchema: invalid: "pg_x"`:          postgres.WithSchema("pg_x"),
		`postgres.WithSchema: invalid: "a;drop"`:        postgres.WithSchema("a;drop"),
		`postgres.WithSchema: invalid: "A"`:             postgres.WithSchema("A"),
		"postgres.WithPoll: invalid: 1ms, must be 10ms": postgres.WithPoll(time.Millisecond),
		"postgres.WithPoll: invalid: 1h0m0s":            postgres.WithPoll(time.Hour),
		`postgres.WithUnsafe: invalid: "autovacuum"`:    postgres.WithUnsafe("fsync", "autovacuum"),
		"a nil Option": nil,
	} {
		_, err := postgres.New(p, o)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	s := must(postgres.New(p, postgres.WithLogger(nil), postgres.WithListener(nil)))(t)
	require.Equal(t, []string{"127.0.0.1:1"}, s.Limits().Endpoints)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(postgres.Store))
}

// deniedBy makes calls of a Store that may not do anything, each of which must say why.
func deniedBy(t *testing.T, s *postgres.Store, is error, says string) {
	t.Helper()
	x := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: store.Owner{ID: "a", Incarnation: "a-1"}}
	_, open := s.OpenSession(t.Context(), x)
	_, acquire := s.Acquire(t.Context(), x, []store.Claim{claim("a")})
	_, renew := s.Renew(t.Context(), []store.Session{x})
	_, get := s.Get(t.Context(), "a")
	var list, watch error
	for _, err := range s.List(t.Context(), store.Query{}) {
		list = err
	}
	for _, err := range s.Watch(t.Context(), store.Scope{Deletions: true}) {
		watch = err
	}
	for what, err := range map[string]error{"check": s.Check(t.Context()), "open": open, "acquire": acquire, "renew": renew, "get": get, "list": list, "watch": watch} {
		require.ErrorIs(t, err, store.ErrDenied, what)
		require.ErrorIs(t, err, is, what)
		require.ErrorContains(t, err, says, what)
	}
}

// works shows that leases can be had.
func works(t *testing.T, s *postgres.Store) {
	t.Helper()
	a := session(t, s, "a")
	win(t, s, a, fmt.Sprint("works/", ids.Add(1)))
	require.NoError(t, s.CloseSession(t.Context(), a))
}

func silent(t *testing.T, p *pgxpool.Pool, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s := must(postgres.New(p, append(opts, postgres.WithLogger(zap.NewNop()))...))(t)
	return s
}

// TestSchemaThatDoesNotFit: one that is missing, older or newer is refused by name, and once it
// fits the same Store goes on.
func TestSchemaThatDoesNotFit(t *testing.T) {
	t.Parallel()
	p := pool(t)
	schema := postgres.WithSchema("unfit")
	s := silent(t, p, schema)
	deniedBy(t, s, postgres.ErrSchema, "unfit is missing: call Migrate")
	require.NoError(t, s.Migrate(t.Context()))
	works(t, s)
	exec := func(q string) {
		must(p.Exec(t.Context(), q))(t)
	}
	exec("UPDATE unfit.version SET version = 0")
	deniedBy(t, silent(t, p, schema), postgres.ErrSchema, "has version 0, which is older than 1")
	require.ErrorIs(t, s.Migrate(t.Context()), postgres.ErrSchema)
	exec("UPDATE unfit.version SET version = 7, oldest = 3")
	deniedBy(t, silent(t, p, schema), postgres.ErrSchema, "needs a program that knows version 3, this one knows 1")
	exec("UPDATE unfit.version SET version = 7, oldest = 1") // newer, but this version will do
	works(t, silent(t, p, schema))
	exec("DROP SCHEMA unfit CASCADE")
	_, err := s.Get(t.Context(), "a") // it had been checked
	require.ErrorIs(t, err, postgres.ErrSchema)
	deniedBy(t, s, postgres.ErrSchema, "unfit is missing")
	exec("CREATE SCHEMA unfit")
	require.NoError(t, s.Migrate(t.Context()), "into a schema that a DBA made")
	works(t, s)
}

// TestMigrateAtOnce: any number of processes may.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	p := pool(t)
	errs := make(chan error)
	for range 8 {
		go func() { errs <- silent(t, p, postgres.WithSchema("at_once")).Migrate(context.Background()) }()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	works(t, silent(t, p, postgres.WithSchema("at_once")))
}

// TestSchemaByHand: what Schema prints makes the same as Migrate, also under a name that is a word
// of SQL.
func TestSchemaByHand(t *testing.T) {
	t.Parallel()
	p := pool(t)
	for _, name := range []string{postgres.DefaultSchema, "user"} {
		s := silent(t, p, postgres.WithSchema(name))
		require.NoError(t, server(t).Exec(t.Context(), s.Schema()))
		works(t, s)
		require.NoError(t, s.Migrate(t.Context()))
	}
	for _, q := range []string{`"user".lease`, "holdfast.lease"} {
		var n int
		require.NoError(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+q).Scan(&n))
		require.Equal(t, 1, n, q)
	}
}

// TestPermissions: what docs/postgres.md grants is enough, and what is missing is named.
func TestPermissions(t *testing.T) {
	t.Parallel()
	srv := server(t)
	require.NoError(t, srv.Exec(t.Context(), "CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN"))
	owner := silent(t, pool(t), postgres.WithSchema("perms"))
	require.NoError(t, owner.Migrate(t.Context()))
	as := func(role string) *postgres.Store {
		return silent(t, postgrestest.PoolOf(t, srv.URLOf(role, "postgres")), postgres.WithSchema("perms"))
	}
	deniedBy(t, as("stranger"), postgres.ErrPermission, `GRANT USAGE ON SCHEMA perms TO "stranger"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA perms TO "stranger"`)
	require.NoError(t, srv.Exec(t.Context(), "GRANT USAGE ON SCHEMA perms TO stranger, app"))
	deniedBy(t, as("stranger"), postgres.ErrPermission, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA perms")
	require.NoError(t, srv.Exec(t.Context(), "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA perms TO app"))
	app := as("app")
	works(t, app)
	r := win(t, app, session(t, app, "a"), "job")
	p := postgrestest.PoolOf(t, srv.URLOf("app", "postgres"))
	tx := must(p.Begin(t.Context()))(t)
	require.NoError(t, app.Guard(t.Context(), tx, own(r)))
	require.NoError(t, tx.Commit(t.Context()))
	_, err := p.Exec(t.Context(), "DELETE FROM perms.lease")
	require.ErrorContains(t, err, "permission denied", "the tables themselves are nobody's")
	require.ErrorIs(t, as("app").Migrate(t.Context()), nil, "there is nothing to do")
	err = silent(t, p, postgres.WithSchema("perms_new")).Migrate(t.Context())
	require.ErrorIs(t, err, postgres.ErrPermission)
	deniedBy(t, silent(t, postgrestest.PoolOf(t, srv.URLOf("nobody", "postgres")), postgres.WithSchema("perms")), postgres.ErrPermission, "nobody")
	deniedBy(t, silent(t, postgrestest.PoolOf(t, srv.URLOf("app", "none"))), postgres.ErrSchema, "no such database")
}

// TestEncodingOfTheClient: by another than UTF-8 a name would be another one, and so held beside what
// clients hold that have UTF-8.
func TestEncodingOfTheClient(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	by := func(encoding string) *postgres.Store {
		return silent(t, server(t).Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = encoding }),
			postgres.WithSchema(first.SchemaName()))
	}
	for _, encoding := range []string{"LATIN1", "WIN1252", "EUC_JP"} {
		require.ErrorIs(t, by(encoding).Check(t.Context()), postgres.ErrUnsafeServer)
		deniedBy(t, by(encoding), postgres.ErrUnsafeServer, "client_encoding is "+encoding+", must be UTF8")
	}
	a := session(t, first, "a")
	r := win(t, first, a, "käse")
	for _, encoding := range []string{"UTF8", "utf-8", "UNICODE", "SQL_ASCII"} {
		s := by(encoding)
		out := ask(t, s, session(t, s, "b"), claim("käse"))[0]
		require.False(t, out.OK, encoding)
		require.Equal(t, r.Token, out.Record.Token)
	}
}

// TestServersThatAreNotSafe are refused by the name of the setting.
func TestServersThatAreNotSafe(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t)
	p := srv.Pool(t)
	s := silent(t, p)
	require.NoError(t, s.Migrate(t.Context()))
	for _, setting := range []string{"fsync", "full_page_writes"} {
		require.NoError(t, srv.Set(t.Context(), setting, "off"))
		deniedBy(t, silent(t, p), postgres.ErrUnsafeServer, setting+" is off")
		works(t, silent(t, p, postgres.WithUnsafe(setting)))
		require.NoError(t, srv.Reset(t.Context(), setting))
	}
	for _, by := range []string{"DATABASE postgres", "ROLE " + postgrestest.Superuser} {
		require.NoError(t, srv.Exec(t.Context(), "ALTER "+by+" SET array_nulls = off"))
		other := srv.Pool(t)
		require.ErrorIs(t, silent(t, other).Check(t.Context()), postgres.ErrUnsafeServer)
		deniedBy(t, silent(t, other), postgres.ErrUnsafeServer, "array_nulls is off, must be on")
		require.NoError(t, srv.Exec(t.Context(), "ALTER "+by+" RESET array_nulls"))
		other.Reset()
		works(t, silent(t, other))
	}
	require.NoError(t, srv.Exec(t.Context(), "ALTER TABLE holdfast.change SET UNLOGGED"))
	deniedBy(t, silent(t, p), postgres.ErrUnsafeServer, "in schema holdfast: change")
	require.NoError(t, srv.Exec(t.Context(), "ALTER TABLE holdfast.change SET LOGGED"))
	works(t, silent(t, p))

	require.NoError(t, srv.NewDatabase(t.Context(), "latin", "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"))
	latin := silent(t, postgrestest.PoolOf(t, srv.URLOf(postgrestest.Superuser, "latin")))
	deniedBy(t, latin, postgres.ErrUnsafeServer, "server_encoding is LATIN1, must be UTF8")
	require.ErrorIs(t, latin.Migrate(t.Context()), postgres.ErrUnsafeServer)

	standby := must(srv.NewStandby(t.Context()))(t)
	deniedBy(t, silent(t, standby.Pool(t)), postgres.ErrReadOnly, "standby")

	// One that refuses a session's default, and then what is said in its place: it is reached
	// later on.
	var to atomic.Pointer[postgrestest.Server]
	to.Store(srv)
	p = srv.Pool(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
			at, err := pgx.ParseConfig(to.Load().URL())
			if err == nil {
				cc.Host, cc.Port = at.Host, at.Port
			}
			return err
		}
	})
	s = silent(t, p)
	works(t, s)
	to.Store(standby)
	p.Reset()
	deniedBy(t, s, postgres.ErrReadOnly, "standby")
	deniedBy(t, silent(t, p), postgres.ErrReadOnly, "standby")
}

// TestOtherDefaults: whatever isolation, durability and access a database has by default, leases
// have their own.
func TestOtherDefaults(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t)
	require.NoError(t, silent(t, srv.Pool(t)).Migrate(t.Context()))
	for _, set := range [][2]string{
		{"default_transaction_isolation", "serializable"}, {"default_transaction_isolation", "repeatable read"},
		{"default_transaction_read_only", "on"}, {"synchronous_commit", "off"}, {"search_path", "none"},
		{"standard_conforming_strings", "off"}, {"DateStyle", "German"}, {"IntervalStyle", "sql_standard"},
		{"bytea_output", "escape"}, {"extra_float_digits", "0"}, {"lc_messages", "C"}, {"TimeZone", "Asia/Kolkata"},
	} {
		require.NoError(t, srv.Set(t.Context(), set[0], set[1]), "%v", set)
		p := srv.Pool(t)
		works(t, silent(t, p))
		require.NoError(t, srv.Reset(t.Context(), set[0]))
	}
}

// TestCommitsAreFlushed though the database does not ask for it.
func TestCommitsAreFlushed(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	tx := must(p.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for given, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_apply": "remote_apply"} {
		must(tx.Exec(t.Context(), "SET LOCAL synchronous_commit = "+given))(t)
		var is string
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit') FROM "+s.SchemaName()+".enter()").Scan(&is))
		require.Equal(t, want, is, given)
	}
}
