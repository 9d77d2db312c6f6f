// Package register makes URLs of PostgreSQL known to backends/open. It is imported for that
// alone:
//
//	import _ "github.com/holdfast-go/holdfast/backends/postgres/register"
//
//	store, closeStore, err := open.Open(ctx, "postgres://app:secret@db:5432/app?holdfast_migrate=true")
//
// The schemes are postgres and postgresql. A URL is what pgxpool.ParseConfig takes, so the same
// that psql does, with these settings besides:
//
//	holdfast_schema=NAME     schema of the leases; postgres.DefaultSchema by default
//	holdfast_migrate=true    makes the schema, or brings it to this version, when the store is opened: it
//	                         then fails if no server answers
//	holdfast_listen=true     tells watches of changes at once, over a connection of its own; not
//	                         behind PgBouncer in transaction mode
//
// The store has a pool of its own, of pool_max_conns connections. It opens without waiting for a
// server, but for holdfast_migrate.
package register

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

func init() {
	for _, scheme := range []string{"postgres", "postgresql"} {
		if err := open.Register(scheme, opener); err != nil {
			panic(err) // other code has taken the name
		}
	}
}

// settings are what a URL says to the store alone.
type settings struct {
	schema          string
	migrate, listen bool
}

func opener(ctx context.Context, rest string) (store.Store, func() error, error) {
	config, set, err := parse(rest)
	if err != nil {
		return nil, nil, err
	}
	// ctx bounds the opening, not the pool's life.
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the pool was refused", store.ErrInvalid) // it may show the password
	}
	opts := []postgres.Option{postgres.WithSchema(set.schema)}
	if set.listen {
		opts = append(opts, postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		}))
	}
	s, err := postgres.New(pool, opts...)
	if err == nil && set.migrate {
		err = s.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return s, func() error { pool.Close(); return nil }, nil
}

// parse reads what stands behind the scheme's colon. What it refuses it does not show: there may
// be a password in it.
func parse(rest string) (*pgxpool.Config, settings, error) {
	set := settings{schema: postgres.DefaultSchema}
	invalid := func(format string, args ...any) (*pgxpool.Config, settings, error) {
		return nil, set, fmt.Errorf("%w: "+format, append([]any{store.ErrInvalid}, args...)...)
	}
	if !strings.HasPrefix(rest, "//") {
		return invalid("want postgres://user:password@host:port/database")
	}
	base, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(base[len("//"):], "/")
	if strings.Contains(authority, "#") || strings.ContainsAny(database, "@#") {
		// The piece of a password would be a port, and the rest of it a database that errors name.
		return invalid("'#', or '@' behind the hosts: " +
			"in a user, a password and a database '@', '/', '?' and '#' must be escaped")
	}
	if !strings.ContainsAny(base[len("//"):], "@/") && strings.Contains(query, "@") {
		return invalid("'@' behind '?', and no '/' before it: " +
			"it would end a user and a password; escape it, or write a '/' behind the hosts")
	}
	config, err := pgxpool.ParseConfig("postgres:" + rest)
	if err != nil {
		// Its error may show a part of the password.
		return invalid("no connection string of PostgreSQL, or a file that it names can't be read; " +
			"in a user and a password '@', '/', '?' and '#' must be escaped")
	}
	others := config.ConnConfig.RuntimeParams // what is no setting of pgx
	for name, value := range others {
		switch {
		case name == "holdfast_schema":
			set.schema = value
		case name == "holdfast_migrate":
			set.migrate, err = strconv.ParseBool(value)
		case name == "holdfast_listen":
			set.listen, err = strconv.ParseBool(value)
		case strings.HasPrefix(name, "holdfast_"):
			return invalid("setting %.64q: is not known, of holdfast_listen, holdfast_migrate and holdfast_schema", name)
		case strings.ContainsAny(name, "@/#"):
			return invalid("a setting whose name has '@', '/' or '#': in a user and a password these and '?' must be escaped")
		default:
			continue
		}
		if err != nil {
			return invalid("setting %s: must be true or false", name)
		}
		if strings.Count(query, name) > 1 {
			return invalid("setting %s: must have one value", name)
		}
		delete(others, name)
	}
	return config, set, nil
}
