//go:build unix

package postgres_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/internal/recycled"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// schemas gives every case its own fresh, empty store in one database.
var schemas atomic.Int64

func fresh(tb storetest.TB, pool *pgxpool.Pool, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, append(opts, postgres.WithSchema(fmt.Sprintf("case_%d", schemas.Add(1))))...)
	if err == nil {
		err = s.Migrate(tb.Context())
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// again is another client of the same store.
func again(tb storetest.TB, pool *pgxpool.Pool, of *postgres.Store, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, append(opts, postgres.WithSchema(of.SchemaName()))...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// Runs of the kit are not beside each other: two processors have no time for several at once.
func TestConformance(t *testing.T) {
	server := postgrestest.Start(t)
	pool := server.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 60 })
	cases := recycled.Of(pool, 0)
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		schema := cases.Name(tb)
		return func() store.Store { return cases.Client(tb, schema) }
	},
		storetest.TTL(3*time.Second),
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
			schema := cases.Name(tb)
			route, err := server.NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			cut := route.Pool(t)
			route.Cut()
			return func() store.Store { return recycled.Of(cut, 0).Client(tb, schema) }
		}),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			schema := cases.Name(tb)
			n := 0
			return func() store.Store { return cases.Client(tb, schema) }, func(name string) {
				n++
				spoil(tb, pool, cases.Client(tb, schema), name, n)
			}
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := postgrestest.Start(t)
			pool := own.Pool(t)
			first := fresh(tb, pool)
			return func() store.Store { return again(tb, pool, first) }, func() {
				if err := own.Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}),
	)
}

// spoil writes something under a free name that is no record of this version, past the Store, as
// a newer version would: with a change.
func spoil(tb storetest.TB, pool *pgxpool.Pool, s *postgres.Store, name string, n int) {
	tb.Helper()
	rows := []string{"2, NULL, NULL", "2, 7, 'x'", "0, 7, NULL"}
	q := fmt.Sprintf(`WITH l AS (INSERT INTO %[1]s.lease (name, rev, nonce, format, session, meta) VALUES ($1, 1, 1, %[2]s)
		ON CONFLICT (name) DO UPDATE SET rev = %[1]s.next_rev(%[1]s.lease.rev), nonce = 1, format = excluded.format,
			session = excluded.session, meta = excluded.meta RETURNING *)
		INSERT INTO %[1]s.change (seq, at, put, format, name, rev)
		SELECT nextval('%[1]s.change_seq'), clock_timestamp(), true, l.format, l.name, l.rev FROM l`, s.SchemaName(), rows[n%len(rows)])
	if _, err := pool.Exec(tb.Context(), q, name); err != nil {
		tb.Fatalf("%v", err)
	}
}

// TestConformanceThroughPgBouncer runs the kit through a pooler that gives each transaction another
// connection, with a listener past it.
func TestConformanceThroughPgBouncer(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same without a pooler")
	postgrestest.Skip(t, postgrestest.NeedBouncer)
	server := postgrestest.Start(t)
	bouncer := must(server.NewBouncer(t.Context(), map[string]string{"default_pool_size": "10"}))(t)
	pool := postgrestest.PoolOf(t, bouncer.URL(), func(c *pgxpool.Config) { c.MaxConns = 60 })
	listener := postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, server.URL()) })
	cases := recycled.Of(pool, 0)
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		schema := cases.Name(tb)
		return func() store.Store { return cases.Client(tb, schema, listener) }
	}, storetest.TTL(2*time.Second))
}

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

// TestRightsOfMigrate: what it lacks is named, and once it is granted it goes on.
func TestRightsOfMigrate(t *testing.T) {
	t.Parallel()
	srv := server(t)
	exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
	exec(`CREATE ROLE "mig-1" LOGIN; CREATE ROLE mig_2 LOGIN`)
	require.NoError(t, srv.NewDatabase(t.Context(), "rights-db", ""))
	as := func(role, schema string) *postgres.Store {
		return silent(t, postgrestest.PoolOf(t, srv.URLOf(role, "rights-db")), postgres.WithSchema(schema))
	}
	refused := func(s *postgres.Store, says string) {
		t.Helper()
		err := s.Migrate(t.Context())
		require.ErrorIs(t, err, postgres.ErrPermission)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "EXECUTE")
	}
	conn := must(srv.ConnTo(t.Context(), "rights-db"))(t)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	grant := func(q string) {
		t.Helper()
		must(conn.Exec(t.Context(), q))(t)
	}
	refused(as("mig-1", "made"), `GRANT CREATE ON DATABASE "rights-db" TO "mig-1"`)
	grant(`GRANT CREATE ON DATABASE "rights-db" TO "mig-1"`)
	require.NoError(t, as("mig-1", "made").Migrate(t.Context()))

	grant("CREATE SCHEMA given")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	grant("GRANT USAGE ON SCHEMA given TO mig_2")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	grant("GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	require.NoError(t, as("mig_2", "given").Migrate(t.Context()))
	grant("DROP FUNCTION given.edition()")
	grant("REVOKE CREATE ON SCHEMA given FROM mig_2")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")

	// Functions of an older edition, of another role.
	grant("DROP FUNCTION made.edition()")
	refused(as("mig_2", "made"), `belongs to "mig-1": have "mig-1" call Migrate or apply Functions, not mig_2`)
	grant("GRANT USAGE, CREATE ON SCHEMA made TO mig_2")
	refused(as("mig_2", "made"), `belongs to "mig-1"`)
	require.NoError(t, as("mig-1", "made").Migrate(t.Context()))
	works(t, as("mig-1", "made"))

	// Nothing to do, but no right to use it.
	grant("REVOKE USAGE ON SCHEMA made FROM mig_2")
	err := as("mig_2", "made").Migrate(t.Context())
	require.ErrorIs(t, err, postgres.ErrPermission)
	require.ErrorContains(t, err, "GRANT USAGE ON SCHEMA made")
}

// TestSettingsChangeWhileItRuns: what a connection makes of what it is sent is asked of each, also of
// those that are made after others were found fit, as when a role is changed while programs run.
func TestSettingsChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	r := win(t, first, session(t, first, "a"), "käse")
	for says, set := range map[string]string{
		"client_encoding is LATIN1, must be UTF8": "SET client_encoding = 'LATIN1'",
		"array_nulls is off, must be on":          "SET array_nulls = off",
	} {
		var changed atomic.Bool
		p := server(t).Pool(t, func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				if !changed.Load() {
					return nil
				}
				_, err := conn.Exec(ctx, set)
				return err
			}
		})
		s := silent(t, p, postgres.WithSchema(first.SchemaName()))
		works(t, s)
		b := session(t, s, "b")
		tx := must(p.Begin(t.Context()))(t)
		require.NoError(t, s.Guard(t.Context(), tx, own(r)))
		require.NoError(t, tx.Commit(t.Context()))

		changed.Store(true)
		p.Reset()
		_, err := s.Acquire(t.Context(), b, []store.Claim{claim("käse")}) // with no check before it
		require.ErrorIs(t, err, store.ErrDenied)
		require.ErrorIs(t, err, postgres.ErrUnsafeServer)
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, s.Check(t.Context()), postgres.ErrUnsafeServer)
		deniedBy(t, s, postgres.ErrUnsafeServer, says)

		// A transaction of a pool that no Store has.
		tx = must(p.Begin(t.Context()))(t)
		err = first.Guard(t.Context(), tx, own(r))
		require.ErrorIs(t, err, postgres.ErrUnsafeServer)
		require.NotErrorIs(t, err, postgres.ErrFenced, "it is held")
		require.ErrorContains(t, err, says)
		require.Error(t, tx.Commit(t.Context()))

		changed.Store(false)
		p.Reset()
		out := ask(t, s, b, claim("käse"))[0]
		require.False(t, out.OK)
		require.Equal(t, r.Token, out.Record.Token)
	}

	handle := must(sql.Open("pgx", server(t).URL()))(t)
	defer func() { require.NoError(t, handle.Close()) }()
	tx := must(handle.BeginTx(t.Context(), nil))(t)
	defer func() { _ = tx.Rollback() }()
	must(tx.ExecContext(t.Context(), "SET LOCAL array_nulls = off"))(t)
	require.ErrorIs(t, first.GuardTx(t.Context(), tx, own(r)), postgres.ErrUnsafeServer)
}

// TestEdition: functions that were changed have another edition. If this fails, raise the edition in
// sql/edition.sql and check.go, unless the one that is there was never released, and put the new
// sum here.
func TestEdition(t *testing.T) {
	t.Parallel()
	s := silent(t, nowhere(t))
	require.Contains(t, s.Functions(), "SELECT 3 $$;")
	require.Equal(t, "471bc9d5aa6f9f19", fmt.Sprintf("%x", sha256.Sum256([]byte(s.Functions())))[:16])
	require.NotContains(t, s.Functions(), "CREATE TABLE")
	for _, statement := range strings.Split(s.Functions(), "\n\n") {
		require.Contains(t, s.Schema(), statement)
	}
	require.Empty(t, new(postgres.Store).Functions())
}

// TestFunctionsOfAnotherEdition: older ones are refused, and replaced by Migrate; newer ones are
// left as they are, and used.
func TestFunctionsOfAnotherEdition(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	schema := postgres.WithSchema(s.SchemaName())
	held := win(t, s, session(t, s, "a"), "job")
	exec := func(q string) {
		must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName())))(t)
	}
	const none = "CREATE OR REPLACE FUNCTION %s.get(p_names text[]) RETURNS SETOF %[1]s.record LANGUAGE sql AS 'SELECT r.* FROM %[1]s.record r WHERE false'"
	stands := func() int {
		recs := must(silent(t, p, schema).Get(t.Context(), "job"))(t)
		for _, r := range recs {
			require.Equal(t, held.Token, r.Token)
		}
		return len(recs)
	}
	for _, older := range []string{"DROP FUNCTION %s.edition()", "CREATE OR REPLACE FUNCTION %s.edition() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'"} {
		for _, mend := range []func(){
			func() { require.NoError(t, silent(t, p, schema).Migrate(t.Context())) },
			func() { require.NoError(t, server(t).Exec(t.Context(), s.Functions())) },
		} {
			exec(none)
			exec(older)
			deniedBy(t, silent(t, p, schema), postgres.ErrSchema, "has functions of edition 0, which is older than 3: call Migrate")
			mend()
			require.Equal(t, 1, stands())
			works(t, silent(t, p, schema))
		}
	}
	exec(none)
	exec("CREATE OR REPLACE FUNCTION %s.edition() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 41'")
	require.NoError(t, silent(t, p, schema).Migrate(t.Context()))
	require.Zero(t, stands(), "a newer one was replaced")
}

// TestGrantsStay: new functions in place of older ones take no rights from those who have them, as
// programs are at work by these; and PUBLIC has none on functions that are made anew.
func TestGrantsStay(t *testing.T) {
	t.Parallel()
	p := pool(t)
	role := fmt.Sprintf("grants_%d", schemas.Add(1))
	must(p.Exec(t.Context(), "CREATE ROLE "+role))(t)
	for i, migrate := range []bool{true, false} {
		s := fresh(t, p)
		exec := func(q string) {
			t.Helper()
			must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName(), role)))(t)
		}
		may := func(who, function string) (yes bool) {
			t.Helper()
			const q = `SELECT EXISTS (SELECT FROM pg_proc f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
				WHERE f.pronamespace = to_regnamespace($1) AND f.proname = $2 AND a.privilege_type = 'EXECUTE'
				AND a.grantee = CASE $3 WHEN 'PUBLIC' THEN 0 ELSE $3::regrole::oid END)`
			require.NoError(t, p.QueryRow(t.Context(), q, s.SchemaName(), function, who).Scan(&yes))
			return yes
		}
		require.False(t, may("PUBLIC", "renew"), "of a new schema")
		exec("GRANT EXECUTE ON FUNCTION %[1]s.renew(bigint[], text[]) TO PUBLIC")
		exec("GRANT EXECUTE ON FUNCTION %s.guard(text, bigint) TO %s")
		exec("DROP FUNCTION %[1]s.edition()")
		exec("DROP FUNCTION %[1]s.purge(int)")
		exec("DROP FUNCTION %[1]s.ring()")
		if i == 0 {
			exec("ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT EXECUTE ON FUNCTIONS TO %s")
		}
		if migrate {
			require.NoError(t, silent(t, p, postgres.WithSchema(s.SchemaName())).Migrate(t.Context()))
		} else {
			require.NoError(t, server(t).Exec(t.Context(), s.Functions()))
		}
		require.True(t, may("PUBLIC", "renew"), "it had it")
		require.True(t, may(role, "guard"))
		require.False(t, may("PUBLIC", "guard"))
		require.False(t, may("PUBLIC", "open"))
		for _, anew := range []string{"edition", "purge", "ring"} {
			require.False(t, may("PUBLIC", anew), anew)
			require.Equal(t, i == 0, may(role, anew), anew)
		}
		works(t, silent(t, p, postgres.WithSchema(s.SchemaName())))
	}
}

// TestFunctionsAreTheOwners: functions that a superuser adds run with the rights of the schema's owner,
// as those that are there, and not with the superuser's: the owner can change what they call.
func TestFunctionsAreTheOwners(t *testing.T) {
	t.Parallel()
	srv := server(t)
	p := pool(t)
	for i, migrate := range []bool{true, false} {
		role, schema := fmt.Sprintf("owner_%d", i), fmt.Sprintf("owned_%d", i)
		exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
		exec(fmt.Sprintf(`CREATE ROLE %s LOGIN; CREATE SCHEMA %s; GRANT USAGE, CREATE ON SCHEMA %[2]s TO %[1]s;
			CREATE FUNCTION %[2]s.another() RETURNS int LANGUAGE sql AS 'SELECT 1'`, role, schema))
		owner := silent(t, postgrestest.PoolOf(t, srv.URLOf(role, "postgres")), postgres.WithSchema(schema))
		require.NoError(t, owner.Migrate(t.Context()))
		older := func() {
			exec(fmt.Sprintf("DROP FUNCTION %[1]s.edition(); DROP FUNCTION %[1]s.timeline(); DROP FUNCTION %[1]s.on_timeline(bigint, bigint)", schema))
		}
		older()
		if migrate {
			require.NoError(t, silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context()))
		} else {
			exec(owner.Functions())
		}
		var others string
		require.NoError(t, p.QueryRow(t.Context(), `SELECT coalesce(string_agg(proname, ' ' ORDER BY proname), '') FROM pg_proc
			WHERE pronamespace = to_regnamespace($1) AND proowner <> to_regrole($2)`, schema, role).Scan(&others))
		require.Equal(t, "another", others)
		works(t, owner)
		older()
		require.NoError(t, owner.Migrate(t.Context()), "what a superuser has replaced")
		works(t, owner)
	}
}

// TestNamesOfOthers: what others have put into a schema of the session's search_path, under the names of
// what the check and Migrate use, is not run by them, neither in front of pg_catalog nor behind it, where
// what fits the arguments better is preferred.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	srv := server(t)
	require.NoError(t, srv.NewDatabase(t.Context(), "names", ""))
	conn := must(srv.ConnTo(t.Context(), "names"))(t)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	exec := func(q string) {
		t.Helper()
		_, err := conn.PgConn().Exec(t.Context(), q).ReadAll()
		require.NoError(t, err, q)
	}
	plant := func(schema, function, returns string) {
		exec("CREATE FUNCTION " + schema + "." + function + " RETURNS " + returns +
			" LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted: " + function + "'; END $$")
	}
	exec("CREATE SCHEMA front")
	for function, returns := range map[string]string{
		"current_setting(text)": "text", "current_setting(text, boolean)": "text", "set_config(text, text, boolean)": "text",
		"pg_is_in_recovery()": "boolean", "pg_current_wal_insert_lsn()": "pg_lsn", "pg_walfile_name(pg_lsn)": "text",
		`"left"(text, int)`: "text", "to_regnamespace(text)": "regnamespace", "hashtext(text)": "int",
		"pg_advisory_xact_lock(int, int)": "void", "pg_get_userbyid(oid)": "name", "quote_ident(text)": "text",
		"format(text, text)": "text", "is(oid, oid)": "boolean", "is(name, name)": "boolean", "join(text, text)": "text",
	} {
		plant("front", function, returns)
	}
	exec("CREATE OPERATOR front.= (FUNCTION = front.is, LEFTARG = oid, RIGHTARG = oid)")
	exec("CREATE OPERATOR front.= (FUNCTION = front.is, LEFTARG = name, RIGHTARG = name)")
	exec("CREATE OPERATOR front.|| (FUNCTION = front.join, LEFTARG = text, RIGHTARG = text)")
	exec("CREATE DOMAIN front.timestamptz AS pg_catalog.timestamptz CHECK (VALUE IS NULL)")
	plant("public", "quote_ident(name)", "text")
	plant("public", "better(text, name, text)", "text")
	exec("CREATE AGGREGATE public.string_agg(name, text) (SFUNC = public.better, STYPE = text)")
	exec("ALTER FUNCTION public.better(text, name, text) CALLED ON NULL INPUT")
	plant("public", "is(oid, regnamespace)", "boolean")
	exec("CREATE OPERATOR public.= (FUNCTION = public.is, LEFTARG = oid, RIGHTARG = regnamespace)")

	for name, path := range map[string]string{"front": "front, pg_catalog", "behind": "public", "both": "front, pg_catalog, public"} {
		p := postgrestest.PoolOf(t, srv.URLOf(postgrestest.Superuser, "names"),
			func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
		s := silent(t, p, postgres.WithSchema("by_migrate_"+name))
		require.NoError(t, s.Migrate(t.Context()), path)
		exec("ALTER TABLE " + s.SchemaName() + ".change SET UNLOGGED")
		require.ErrorIs(t, s.Check(t.Context()), postgres.ErrUnsafeServer)
		exec("ALTER TABLE " + s.SchemaName() + ".change SET LOGGED")
		works(t, s)
		exec("DROP FUNCTION " + s.SchemaName() + ".edition(); DROP FUNCTION " + s.SchemaName() + ".purge(int)")
		require.NoError(t, s.Migrate(t.Context()), path)
		works(t, s)

		s = silent(t, p, postgres.WithSchema("by_hand_"+name))
		for _, text := range []string{s.Schema(), s.Functions()} {
			tx := must(p.Begin(t.Context()))(t)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			_, err := tx.Conn().PgConn().Exec(t.Context(), text).ReadAll()
			require.NoError(t, err, path)
			var is string
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_catalog.current_setting('search_path')").Scan(&is))
			require.Equal(t, path, is, "of what else is in the transaction")
			require.NoError(t, tx.Commit(t.Context()))
			works(t, s)
		}
		var others int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			WHERE c.relnamespace = to_regnamespace($1) AND a.atttypid = 'front.timestamptz'::regtype`, s.SchemaName()).Scan(&others))
		require.Zero(t, others)
	}
}

// shareSchema is a schema with leases of an older edition, whose owner is a role; another role may make
// functions in it. exec is a superuser's.
func shareSchema(t *testing.T, name string) (owner *postgres.Store, exec func(q string)) {
	t.Helper()
	srv := server(t)
	exec = func(q string) {
		t.Helper()
		require.NoError(t, srv.Exec(t.Context(), strings.ReplaceAll(q, "%s", name)))
	}
	exec(`CREATE ROLE %s_owner LOGIN; CREATE ROLE %s_other LOGIN;
		CREATE SCHEMA %s; GRANT USAGE, CREATE ON SCHEMA %s TO %s_owner, %s_other`)
	owner = silent(t, postgrestest.PoolOf(t, srv.URLOf(name+"_owner", "postgres")), postgres.WithSchema(name))
	require.NoError(t, owner.Migrate(t.Context()))
	exec("DROP FUNCTION %s.edition(); DROP FUNCTION %s.purge(int)")
	return owner, exec
}

// TestFunctionsMadeMeanwhile: what another role makes in the schema while functions are replaced is
// neither given to the owner of the tables nor taken from PUBLIC.
func TestFunctionsMadeMeanwhile(t *testing.T) {
	t.Parallel()
	owner, exec := shareSchema(t, "meanwhile")
	p := pool(t)
	before, after, ok := strings.Cut(owner.Functions(), "-- The edition of these functions.")
	require.True(t, ok)
	tx := must(p.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	must(tx.Conn().PgConn().Exec(t.Context(), before).ReadAll())(t)
	exec("SET ROLE %s_other; CREATE FUNCTION %s.others() RETURNS int LANGUAGE sql AS 'SELECT 1'; RESET ROLE")
	must(tx.Conn().PgConn().Exec(t.Context(), "-- "+after).ReadAll())(t)
	require.NoError(t, tx.Commit(t.Context()))

	is := map[string]string{}
	for _, f := range []string{"others", "purge"} {
		var of string
		var public bool
		require.NoError(t, p.QueryRow(t.Context(), `SELECT pg_get_userbyid(f.proowner), has_function_privilege('meanwhile_other', f.oid, 'EXECUTE')
			AND (f.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(f.proacl) a WHERE a.grantee = 0))
			FROM pg_proc f WHERE f.pronamespace = to_regnamespace('meanwhile') AND f.proname = $1`, f).Scan(&of, &public))
		is[f] = fmt.Sprintf("%s, public %v", of, public)
	}
	require.Equal(t, map[string]string{"others": "meanwhile_other, public true", "purge": "meanwhile_owner, public false"}, is)
	works(t, owner)
}

// TestPlantedFunctions: one of another role, under the name of one that is to come, is not left to that
// role with the store's text in it: it could change it later. Nothing is changed until it is dropped.
func TestPlantedFunctions(t *testing.T) {
	t.Parallel()
	owner, exec := shareSchema(t, "planted")
	p := pool(t)
	admin := silent(t, p, postgres.WithSchema("planted"))
	exec(`SET ROLE %s_other; CREATE FUNCTION %s.purge(p_limit int) RETURNS int LANGUAGE sql AS 'SELECT 77'; RESET ROLE`)
	for what, mend := range map[string]func() error{
		"Migrate":              func() error { return admin.Migrate(t.Context()) },
		"Functions":            func() error { return server(t).Exec(t.Context(), owner.Functions()) },
		"with savepoints":      func() error { return withSavepoints(t, p, owner.Functions()) },
		"Migrate of the owner": func() error { return owner.Migrate(t.Context()) },
	} {
		err := mend()
		require.Error(t, err, what)
		if strings.HasPrefix(what, "Migrate") {
			require.ErrorIs(t, err, postgres.ErrSchema)
			require.NotErrorIs(t, err, postgres.ErrPermission)
		}
		if what != "Migrate of the owner" { // who may not replace it
			require.ErrorContains(t, err,
				"the function planted.purge(integer) was there before, and belongs to planted_other, not to planted_owner as the tables do: drop it, or ALTER FUNCTION ... OWNER TO planted_owner", what)
		} else {
			require.ErrorContains(t, err, "drop it, or ALTER FUNCTION ... OWNER TO planted_owner")
		}
		var is int
		require.NoError(t, p.QueryRow(t.Context(), "SELECT planted.purge(1) - 77 + count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('planted') AND proname = 'edition'").Scan(&is))
		require.Zero(t, is, "something was changed")
	}
	exec("DROP FUNCTION %s.purge(int); CREATE PROCEDURE %s.purge(p_limit int) LANGUAGE sql AS 'SELECT 77'")
	require.ErrorIs(t, admin.Migrate(t.Context()), postgres.ErrSchema)
	exec("DROP PROCEDURE %s.purge(int)")
	require.NoError(t, withSavepoints(t, p, owner.Functions()))
	works(t, owner)
	exec("DROP FUNCTION %s.edition()")
	require.NoError(t, admin.Migrate(t.Context()))
	works(t, owner)
}

// withSavepoints applies statements in one transaction, each behind a savepoint of its own, as psql does
// by ON_ERROR_ROLLBACK.
func withSavepoints(t *testing.T, p *pgxpool.Pool, text string) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		for _, statement := range strings.Split(strings.TrimSpace(text), "\n\n") {
			err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := tx.Conn().PgConn().Exec(t.Context(), statement).ReadAll()
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
