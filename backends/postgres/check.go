package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// schemaVersion is the version of the schema that this code makes and needs.
const schemaVersion = 1

// functionsEdition is the edition of the functions that this code needs and makes. It grows with each
// change of them, also over versions of the schema.
const functionsEdition = 3

// edition is the SQL of the edition of the functions of a schema, read from the catalog, as one that
// is older has no such function; then it is 0. All that it names is of pg_catalog, as a schema of the
// search_path may have a function or an operator that fits the arguments better, and anybody's.
const edition = `coalesce((SELECT substring(f.prosrc FROM '[0-9]+')::bigint FROM pg_catalog.pg_proc f
	WHERE f.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(%s)
	AND f.proname OPERATOR(pg_catalog.=) 'edition' AND f.pronargs OPERATOR(pg_catalog.=) 0), 0)`

// minServer is the oldest server, as server_version_num has it: 13.0.
const minServer = 130000

// Check asks whether leases can be kept here, as every Store does with its first call: it is for
// programs that want to know when they start. Errors are store.ErrDenied and one of ErrSchema,
// ErrPermission, ErrReadOnly, ErrOldPrimary and ErrUnsafeServer, or those of the connection.
func (s *Store) Check(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	_, err := s.check(ctx)
	return s.explain(ctx, "check", s.standby(ctx, err))
}

// check asks server and schema, and returns for which server they are fit.
func (s *Store) check(ctx context.Context) (*server, error) {
	const facts = `SELECT pg_catalog.current_setting('server_version_num')::bigint, pg_catalog.pg_is_in_recovery()::int::bigint,
		(SELECT system_identifier FROM pg_catalog.pg_control_system()), CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
			ELSE ('x' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.pg_walfile_name(
				pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::bigint END,
		pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'),
		pg_catalog.current_setting('server_encoding'), (pg_catalog.to_regnamespace($1) IS NOT NULL)::int::bigint,
		coalesce((SELECT pg_catalog.string_agg(c.relname::pg_catalog.text, ', ' ORDER BY c.relname)
			FROM (SELECT * FROM pg_catalog.pg_class WHERE relname OPERATOR(pg_catalog.=) ANY (ARRAY[` + relations + `])) c
			WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace($1)
			AND c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'S']::pg_catalog."char"[])
			AND c.relpersistence OPERATOR(pg_catalog.<>) 'p'), ''), `
	var at server
	var version, standby, exists, has int64
	var fsync, pages, encoding, unlogged string
	err := s.db.Run(ctx, facts+fmt.Sprintf(edition, "$1"), []any{s.schema}, func(scan db.Scan) error {
		return scan(&version, &standby, &at.system, &at.timeline, &fsync, &pages, &encoding, &exists, &unlogged, &has)
	})
	if err != nil {
		return nil, err
	}
	if err := s.fit(version, standby != 0, fsync, pages, encoding, exists != 0, unlogged); err != nil {
		return nil, err
	}
	if err := s.primary.older(at); err != nil {
		return nil, err
	}
	if err := s.checkVersion(ctx); err != nil {
		return nil, err
	}
	if has < functionsEdition {
		return nil, denied(ErrSchema,
			"%s has functions of edition %d, which is older than %d: call Migrate, or apply Functions",
			s.schema, has, functionsEdition)
	}
	// What a call asks by itself, too, as it may get another connection.
	query, args := s.on(0, db.AnyTimeline, "SELECT 1", nil)
	if err := s.db.Run(ctx, query, args, func(db.Scan) error { return nil }); err != nil {
		return nil, err
	}
	return &at, s.primary.use(at)
}

// fit judges what a server said of itself.
func (s *Store) fit(server int64, standby bool, fsync, pages, encoding string, exists bool, unlogged string) error {
	off := func(setting, value string) bool { return value == "off" && !slices.Contains(s.unsafe, setting) }
	switch {
	case server < minServer:
		return denied(ErrUnsafeServer, "server_version_num is %d, must be %d (version 13) or above", server, minServer)
	case standby:
		return denied(ErrReadOnly, "the server is a standby (pg_is_in_recovery): "+
			"connect to the primary, as with target_session_attrs=read-write")
	case off("fsync", fsync):
		return denied(ErrUnsafeServer, "fsync is off, must be on: a crash of the machine would take leases back")
	case off("full_page_writes", pages):
		return denied(ErrUnsafeServer, "full_page_writes is off, "+
			"must be on unless the file system can't tear a page (postgres.WithUnsafe)")
	case !strings.EqualFold(encoding, "UTF8"):
		return denied(ErrUnsafeServer, "server_encoding is %s, must be UTF8", encoding)
	case !exists:
		return denied(ErrSchema, "%s is missing: call Migrate, or apply Schema", s.schema)
	case unlogged != "":
		return denied(ErrUnsafeServer, "not logged, must be (ALTER TABLE … SET LOGGED), in schema %s: %s",
			s.schema, unlogged)
	}
	return nil
}

// checkVersion asks for the version of the schema.
func (s *Store) checkVersion(ctx context.Context) error {
	var version, oldest int64
	err := s.db.Run(ctx, "SELECT version::bigint, oldest::bigint FROM "+s.function("schema_version")+"()", nil,
		func(scan db.Scan) error { return scan(&version, &oldest) })
	if err != nil {
		return err
	}
	return s.judge(version, oldest)
}

// judge compares the version of the schema with what this code needs.
func (s *Store) judge(version, oldest int64) error {
	switch {
	case version < schemaVersion:
		return denied(ErrSchema, "%s has version %d, which is older than %d: call Migrate, or apply Schema",
			s.schema, version, schemaVersion)
	case oldest > schemaVersion:
		return denied(ErrSchema,
			"%s has version %d, which is too new: it needs a program that knows version %d, this one knows %d",
			s.schema, version, oldest, schemaVersion)
	}
	return nil
}

// function is the name of a function of the schema.
func (s *Store) function(name string) string { return `"` + s.schema + `".` + name }

// made refuses a Store that did not come from New, and a nil context.
func (s *Store) made(ctx context.Context) error {
	if s.db == nil {
		return fmt.Errorf("postgres: %w: the store is the zero value, must come from postgres.New", store.ErrInvalid)
	}
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// call makes one statement, "SELECT columns FROM function(parameters)", once server and schema
// are known to be fit. row gets each row; if the statement fails it may have got some.
func (s *Store) call(ctx context.Context, op, query string, args []any, row func(db.Scan) error) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return s.explain(ctx, op, ctx.Err())
	}
	err := s.send(ctx, query, args, row)
	if db.StateOf(err) == db.StateTimeline { // before anything was asked of it: it is not the server that was checked
		s.primary.forget()
		err = s.send(ctx, query, args, row)
	}
	if err != nil {
		s.primary.forget() // the next call may reach another server, or another schema
	}
	return s.explain(ctx, op, s.standby(ctx, err))
}

func (s *Store) send(ctx context.Context, query string, args []any, row func(db.Scan) error) (err error) {
	at := s.primary.checked()
	if at == nil {
		if at, err = s.check(ctx); err != nil {
			return err
		}
	}
	query, args = s.on(at.timeline, at.timeline, query, args)
	err = s.db.Run(ctx, query, args, row)
	if err != nil {
		return err
	}
	// It may have waited for a connection, and been answered by the old primary after another call
	// had used the new one: a renewal, say, that the new one knows nothing of.
	if latest := s.primary.latest(at.system); latest > at.timeline {
		return fmt.Errorf("the answer is of timeline %d, and meanwhile this store has used timeline %d of the same "+
			"database system, which may not have what was done", at.timeline, latest)
	}
	return nil
}
