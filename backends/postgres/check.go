package postgres

import (
	"slices"
	"strings"
)

// schemaVersion is the version of the schema that this code makes and needs.
const schemaVersion = 1

// functionsEdition is the edition of the functions that this code needs and makes. It grows with each
// change of them, also over versions of the schema.
const functionsEdition = 3

// minServer is the oldest server, as server_version_num has it: 13.0.
const minServer = 130000

// facts are what a server says of itself and of the schema.
type facts struct {
	at                     server
	version, standby       int64
	fsync, pages, encoding string
	exists                 int64
	unlogged               string
	edition                int64
}

// factsQuery asks for them, but for the edition, which comes last.
const factsQuery = `SELECT pg_catalog.current_setting('server_version_num')::bigint, pg_catalog.pg_is_in_recovery()::int::bigint,
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

// dest are where its columns go, in their order.
func (f *facts) dest() []any {
	return []any{&f.version, &f.standby, &f.at.system, &f.at.timeline, &f.fsync, &f.pages, &f.encoding,
		&f.exists, &f.unlogged, &f.edition}
}

// fit judges whether leases can be kept here.
func (f *facts) fit(schema string, unsafe []string) error {
	off := func(setting, value string) bool { return value == "off" && !slices.Contains(unsafe, setting) }
	switch {
	case f.version < minServer:
		return denied(ErrUnsafeServer, "server_version_num is %d, must be %d (version 13) or above", f.version, minServer)
	case f.standby != 0:
		return denied(ErrReadOnly, "the server is a standby (pg_is_in_recovery): "+
			"connect to the primary, as with target_session_attrs=read-write")
	case off("fsync", f.fsync):
		return denied(ErrUnsafeServer, "fsync is off, must be on: a crash of the machine would take leases back")
	case off("full_page_writes", f.pages):
		return denied(ErrUnsafeServer, "full_page_writes is off, "+
			"must be on unless the file system can't tear a page (postgres.WithUnsafe)")
	case !strings.EqualFold(f.encoding, "UTF8"):
		return denied(ErrUnsafeServer, "server_encoding is %s, must be UTF8", f.encoding)
	case f.exists == 0:
		return denied(ErrSchema, "%s is missing: call Migrate, or apply Schema", schema)
	case f.unlogged != "":
		return denied(ErrUnsafeServer, "not logged, must be (ALTER TABLE … SET LOGGED), in schema %s: %s",
			schema, f.unlogged)
	}
	return nil
}

// edition is the SQL of the edition of the functions of a schema, read from the catalog, as one that
// is older has no such function; then it is 0. All that it names is of pg_catalog, as a schema of the
// search_path may have a function or an operator that fits the arguments better, and anybody's.
const edition = `coalesce((SELECT substring(f.prosrc FROM '[0-9]+')::bigint FROM pg_catalog.pg_proc f
	WHERE f.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(%s)
	AND f.proname OPERATOR(pg_catalog.=) 'edition' AND f.pronargs OPERATOR(pg_catalog.=) 0), 0)`
