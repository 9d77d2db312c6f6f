package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/lease"
)

// schemaVersion is the version of the schema that this code makes and needs.
const schemaVersion = 1

// minServer is the oldest server, as server_version_num has it: 13.0.
const minServer = 130000

// Check asks whether leases can be kept here, as every Store does with its first call: it is for
// programs that want to know when they start. Errors are lease.ErrDenied and one of ErrSchema,
// ErrPermission, ErrReadOnly and ErrUnsafeServer, or those of the connection.
func (s *Store) Check(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	return s.explain(ctx, "check", s.check(ctx))
}

func (s *Store) check(ctx context.Context) error {
	const facts = `SELECT current_setting('server_version_num')::bigint, pg_is_in_recovery()::int::bigint,
		current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'),
		(to_regnamespace($1::text) IS NOT NULL)::int::bigint,
		coalesce((SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_catalog.pg_class c
			WHERE c.relnamespace = to_regnamespace($1::text) AND c.relkind IN ('r', 'S') AND c.relpersistence <> 'p'), '')`
	var server, standby, exists int64
	var fsync, pages, encoding, unlogged string
	err := s.db.Run(ctx, facts, []any{s.schema}, func(scan db.Scan) error {
		return scan(&server, &standby, &fsync, &pages, &encoding, &exists, &unlogged)
	})
	if err != nil {
		return err
	}
	off := func(setting, value string) bool { return value == "off" && !slices.Contains(s.unsafe, setting) }
	switch {
	case server < minServer:
		return denied(ErrUnsafeServer, "server_version_num is %d, must be %d (version 13) or above", server, minServer)
	case standby != 0:
		return denied(ErrReadOnly, "the server is a standby (pg_is_in_recovery): connect to the primary, as with target_session_attrs=read-write")
	case off("fsync", fsync):
		return denied(ErrUnsafeServer, "fsync is off, must be on: a crash of the machine would take leases back")
	case off("full_page_writes", pages):
		return denied(ErrUnsafeServer, "full_page_writes is off, must be on unless the file system can't tear a page (postgres.WithUnsafe)")
	case !strings.EqualFold(encoding, "UTF8"):
		return denied(ErrUnsafeServer, "server_encoding is %s, must be UTF8", encoding)
	case exists == 0:
		return denied(ErrSchema, "%s is missing: call Migrate, or apply Schema", s.schema)
	case unlogged != "":
		return denied(ErrUnsafeServer, "not logged, must be (ALTER TABLE … SET LOGGED), in schema %s: %s", s.schema, unlogged)
	}
	return s.checkVersion(ctx)
}

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
		return denied(ErrSchema, "%s has version %d, which is older than %d: call Migrate, or apply Schema", s.schema, version, schemaVersion)
	case oldest > schemaVersion:
		return denied(ErrSchema, "%s has version %d, which is too new: it needs a program that knows version %d, this one knows %d",
			s.schema, version, oldest, schemaVersion)
	}
	return nil
}

// function is the name of a function of the schema.
func (s *Store) function(name string) string { return `"` + s.schema + `".` + name }

// made refuses a Store that nobody made, and a context that is none.
func (s *Store) made(ctx context.Context) error {
	if s.db == nil {
		return fmt.Errorf("postgres: %w: the store was made by nobody, must come from postgres.New", lease.ErrInvalid)
	}
	if err := lease.ValidateContext(ctx); err != nil {
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
	var err error
	if !s.checked.Load() {
		if err = s.check(ctx); err == nil {
			s.checked.Store(true)
		}
	}
	if err == nil {
		err = s.db.Run(ctx, query, args, row)
	}
	if err != nil {
		s.checked.Store(false) // the next call may reach another server, or another schema
	}
	return s.explain(ctx, op, err)
}
