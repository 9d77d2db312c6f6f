package postgres

import (
	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
)

// relations are those of sql/schema.sql that have names of their own, as a list of SQL.
const relations = `'version', 'state', 'session', 'lease', 'lease_session', 'change_seq', 'change', 'entity',
	'entity_mark', 'record'`

// found is what Migrate finds.
type found struct {
	schema  int64  // 1: it is there
	version int64  // 1: its table version is there, and ours; then so are the others
	names   string // the relations that have names of ours
	edition int64
}

// state is the SQL of what is found, but for the edition, by the name of the schema. It reads the
// catalog, as a role that may not use a schema may do that.
const state = `SELECT (to_regnamespace('"%[1]s"') IS NOT NULL)::int::bigint,
	(SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = to_regnamespace('"%[1]s"')
		AND c.relname = 'version' AND c.relkind = 'r' AND (SELECT count(*) FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = c.oid AND a.attname IN ('one', 'version', 'oldest') AND NOT a.attisdropped) = 3),
	coalesce((SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_catalog.pg_class c
		WHERE c.relnamespace = to_regnamespace('"%[1]s"') AND c.relname IN (` + relations + `)), ''), `

// unmade says what a migration was refused for.
func (s *Store) unmade(err error) error {
	switch db.StateOf(err) {
	case "42P07", "42710", "42723", "42P13", "42704", "42P01": // it is there, is of another kind, or is not there
		return denied(ErrSchema, "%s was changed, or has something that is not ours under a name of ours: %w", s.schema, err)
	}
	return err
}
