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
	owner   string // whom the table version belongs to
	edition int64
	may     int64 // 1: the role may make things in the schema

	role, database string // that are connected
}

// state is the SQL of what is found, but for the edition, by the name of the schema. It reads the
// catalog, as a role that may not use a schema may do that.
const state = `SELECT (to_regnamespace('"%[1]s"') IS NOT NULL)::int::bigint,
	(SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = to_regnamespace('"%[1]s"')
		AND c.relname = 'version' AND c.relkind = 'r' AND (SELECT count(*) FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = c.oid AND a.attname IN ('one', 'version', 'oldest') AND NOT a.attisdropped) = 3),
	coalesce((SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_catalog.pg_class c
		WHERE c.relnamespace = to_regnamespace('"%[1]s"') AND c.relname IN (` + relations + `)), ''),
	coalesce((SELECT quote_ident(pg_get_userbyid(c.relowner)) FROM pg_catalog.pg_class c
		WHERE c.relnamespace = to_regnamespace('"%[1]s"') AND c.relname = 'version'), ''),
	coalesce(has_schema_privilege(to_regnamespace('"%[1]s"'), 'USAGE') AND has_schema_privilege(to_regnamespace('"%[1]s"'), 'CREATE'),
		false)::int::bigint, quote_ident(current_user), quote_ident(current_database()), `

// unmade says what a migration was refused for.
func (at found) unmade(schema string, err error) error {
	switch db.StateOf(err) {
	case "42501": // insufficient_privilege
		switch {
		case at.role == "": // before it was known
			return err
		case at.schema == 0:
			return denied(ErrPermission, "GRANT CREATE ON DATABASE %s TO %s: %w", at.database, at.role, err)
		case at.version != 0 && at.owner == at.role && at.may != 0:
			return denied(ErrSchema, "%[1]s has what %[2]s, whom the tables belong to, may not replace: "+
				"a function of another role (drop it, or ALTER FUNCTION ... OWNER TO %[2]s): %[3]w", schema, at.role, err)
		case at.version == 0 || at.owner == at.role:
			return denied(ErrPermission, "GRANT USAGE, CREATE ON SCHEMA %s TO %s: %w", schema, at.role, err)
		}
		return denied(ErrPermission, "what is in schema %[1]s belongs to %[2]s: have %[2]s call Migrate or apply Functions, "+
			"not %[3]s, with USAGE and CREATE on the schema: %[4]w", schema, at.owner, at.role, err)
	case "42P07", "42710", "42723", "42P13", "42704", "42P01", "42809": // it is there, is of another kind, or is not there
		return denied(ErrSchema, "%s was changed, or has something that is not ours under a name of ours: %w", schema, err)
	}
	return err
}
