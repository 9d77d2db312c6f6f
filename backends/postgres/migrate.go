package postgres

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
)

//go:embed sql
var files embed.FS

// The files of the schema, in order.
var (
	tables    = []string{"schema"}
	functions = []string{"begin", "base", "session", "acquire", "read", "watch", "entities", "guard", "edition"}
)

// Schema returns the statements that make the schema in an empty database: for those who apply
// them by themselves, as one transaction, in place of Migrate.
func (s *Store) Schema() string {
	if s.db == nil {
		return ""
	}
	// The first of the functions' says what names mean.
	return fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS \"%s\";\n\n", s.schema) +
		s.text(slices.Concat(functions[:1], tables, functions[1:]))
}

// Functions returns the statements that bring the functions of a schema of this version to those of
// this package, and change nothing else: grants of what is there stay, and what is new belongs
// to the owner of the tables, and PUBLIC may not execute it. They are for those who apply them by
// themselves, as one transaction, in place of Migrate.
func (s *Store) Functions() string {
	if s.db == nil {
		return ""
	}
	return s.text(functions)
}

// text is what the files say, of this Store's schema.
func (s *Store) text(names []string) string {
	var b strings.Builder
	for i, name := range names {
		t, err := files.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // a file that is embedded
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.Write(t)
	}
	if s.schema == DefaultSchema {
		return b.String()
	}
	quoted := `"` + s.schema + `"`
	return strings.NewReplacer("holdfast.", quoted+".", "SCHEMA holdfast", "SCHEMA "+quoted,
		"'holdfast'", "'"+quoted+"'").Replace(b.String())
}

// statements are what text says, one by one: they are separated by empty lines.
func statements(text string) []string {
	return strings.Split(strings.TrimSpace(text), "\n\n")
}

// Migrate makes the schema, or brings an older one, or its functions if they are older, to this
// version, in one transaction and under a lock, so that any number of processes may call it at
// once. One that has this version, or a newer one that this version can use, is left as it is. The
// role needs CREATE on the database, or USAGE and CREATE on a schema that is there; it becomes the
// owner, with whose rights the functions run. An older schema must be its own.
//
// A schema may have other things in it, but nothing under the names that Schema gives to its tables,
// sequence, view and index, and no function of the name and the arguments of one of these: then it is
// refused as ErrSchema, and nothing is changed.
//
// Errors are those of Check, and of the connection. The text of ErrPermission says what to grant, or
// who has to call it.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	var at found
	err := s.db.Script(ctx,
		// Names are of pg_catalog from here on, whatever search_path the session has.
		fmt.Sprintf("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "+
			"pg_catalog.pg_advisory_xact_lock(1215261798, pg_catalog.hashtext('%s'))", s.schema),
		fmt.Sprintf(state, s.schema)+fmt.Sprintf(edition, `'"`+s.schema+`"'`),
		func(scan db.Scan) ([]string, error) {
			if err := scan(&at.schema, &at.version, &at.names, &at.owner, &at.may, &at.role, &at.database, &at.edition); err != nil {
				return nil, err
			}
			var all []string
			switch {
			case at.version != 0 && at.edition < functionsEdition:
				return statements(s.text(functions)), nil
			case at.version != 0:
				return nil, nil
			case at.names != "":
				return nil, denied(ErrSchema, "%s has a table or another object that is named as one of the store's, "+
					"that is not ours (WithSchema names another schema): %s", s.schema, at.names)
			}
			if at.schema == 0 {
				all = append(all, fmt.Sprintf(`CREATE SCHEMA "%s"`, s.schema))
			}
			all = append(all, statements(s.text(tables))...)
			// A function of the users' is not replaced.
			return append(all, statements(strings.ReplaceAll(s.text(functions), "CREATE OR REPLACE", "CREATE"))...), nil
		})
	if err == nil {
		_, err = s.check(ctx)
	} else {
		err = at.unmade(s.schema, err)
	}
	return s.explain(ctx, "migrate", err)
}
