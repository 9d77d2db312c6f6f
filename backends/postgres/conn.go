package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
)

// conn is the database as it is reached.
type conn struct {
	db     *db.DB
	schema string
	unsafe []string
	log    *zap.Logger
	poll   time.Duration

	primary primary
	// seen are revisions. A server may lose its last commits: an asynchronous standby that is promoted
	// lacks some, a backup that was restored lacks more. What it then issues is above the clock in
	// microseconds, and so above what was lost, unless that clock is behind; and above what was seen,
	// whatever the clock says.
	seen revision.Seen
}

// asking bounds a request that no caller waits for.
const asking = 5 * time.Second

// check asks server and schema, and returns for which server they are fit.
func (c *conn) check(ctx context.Context) (*server, error) {
	var f facts
	err := c.db.Run(ctx, factsQuery+fmt.Sprintf(edition, "$1"), []any{c.schema},
		func(scan db.Scan) error { return scan(f.dest()...) })
	if err != nil {
		return nil, err
	}
	if err := f.fit(c.schema, c.unsafe); err != nil {
		return nil, err
	}
	if err := f.at.older(c.primary.last()); err != nil {
		return nil, err
	}
	if err := c.checkVersion(ctx); err != nil {
		return nil, err
	}
	if f.edition < functionsEdition {
		return nil, denied(ErrSchema,
			"%s has functions of edition %d, which is older than %d: call Migrate, or apply Functions",
			c.schema, f.edition, functionsEdition)
	}
	// What a call asks by itself, too, as it may get another connection.
	query, args := c.on(0, db.AnyTimeline, "SELECT 1", nil)
	if err := c.db.Run(ctx, query, args, func(db.Scan) error { return nil }); err != nil {
		return nil, err
	}
	return &f.at, c.primary.use(f.at)
}

// checkVersion asks for the version of the schema.
func (c *conn) checkVersion(ctx context.Context) error {
	var version, oldest int64
	err := c.db.Run(ctx, "SELECT version::bigint, oldest::bigint FROM "+c.function("schema_version")+"()", nil,
		func(scan db.Scan) error { return scan(&version, &oldest) })
	switch {
	case err != nil:
		return err
	case version < schemaVersion:
		return denied(ErrSchema, "%s has version %d, which is older than %d: call Migrate, or apply Schema",
			c.schema, version, schemaVersion)
	case oldest > schemaVersion:
		return denied(ErrSchema,
			"%s has version %d, which is too new: it needs a program that knows version %d, this one knows %d",
			c.schema, version, oldest, schemaVersion)
	}
	return nil
}

// function is the name of a function of the schema.
func (c *conn) function(name string) string { return `"` + c.schema + `".` + name }

// made refuses a Store that did not come from New, and a nil context.
func (c *conn) made(ctx context.Context) error {
	if err := input.Call(ctx, c.db != nil, "postgres.New", store.ErrInvalid); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// call makes one statement, "SELECT columns FROM function(parameters)", once server and schema
// are known to be fit. row gets each row; if the statement fails it may have got some.
func (c *conn) call(ctx context.Context, op, query string, args []any, row func(db.Scan) error) error {
	if err := c.made(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return c.explain(ctx, op, ctx.Err())
	}
	err := c.send(ctx, query, args, row)
	if db.StateOf(err) == db.StateTimeline { // before anything was asked of it: it is not the server that was checked
		c.primary.forget()
		err = c.send(ctx, query, args, row)
	}
	if err != nil {
		c.primary.forget() // the next call may reach another server, or another schema
	}
	return c.explain(ctx, op, err)
}

func (c *conn) send(ctx context.Context, query string, args []any, row func(db.Scan) error) (err error) {
	at := c.primary.checked()
	if at == nil {
		if at, err = c.check(ctx); err != nil {
			return err
		}
	}
	query, args = c.on(at.timeline, at.timeline, query, args)
	err = c.db.Run(ctx, query, args, row)
	if err != nil {
		return err
	}
	// It may have waited for a connection, and been answered by the old primary after another call
	// had used the new one: a renewal, say, that the new one knows nothing of.
	if used := c.primary.last(); at.older(used) != nil {
		return fmt.Errorf("the answer is of timeline %d, and meanwhile this store has used timeline %d of the same "+
			"database system, which may not have what was done", at.timeline, used.timeline)
	}
	return nil
}

// explain puts an error of the client into the user's terms. ctx is that of the caller.
func (c *conn) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	state := db.StateOf(err)
	switch {
	case errors.Is(err, store.ErrDenied): // it says why
	case state == db.StateReadOnly:
		err = denied(ErrReadOnly, "a standby, default_transaction_read_only, or a transaction that is READ ONLY itself: %w", err)
	case state == db.StateUnsupported && c.db.Standby(ctx):
		err = denied(ErrReadOnly, "a standby: %w", err)
	case state == db.StateUnsupported:
		err = denied(ErrUnsafeServer, "the server, or a pooler before it, does not support what is sent: %w", err)
	case state == db.StateTimeline:
		err = denied(ErrOldPrimary, "several servers take writes, on different timelines: %w", err)
	case state == db.StateIsolation || state == db.StateSettings:
		err = denied(ErrUnsafeServer, "%w", err)
	case state == "42501": // insufficient_privilege
		role := "the role of the transaction" // Guard's
		if op != "guard" {
			role = c.db.Role()
		}
		err = denied(ErrPermission, "GRANT USAGE ON SCHEMA %[1]s TO %[2]s; "+
			"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s: %[3]w", c.schema, role, err)
	case strings.HasPrefix(state, "28"): // invalid_authorization_specification
		err = denied(ErrPermission, "%w", err)
	case state == "3D000": // invalid_catalog_name
		err = denied(ErrSchema, "there is no such database: %w", err)
	case state == "3F000" || state == "42P01" || state == "42883": // no such schema, table, function
		err = denied(ErrSchema, "%s is missing or was changed: call Migrate, or apply Schema: %w", c.schema, err)
	case state == "57014" && ctx.Err() == nil:
		err = fmt.Errorf("statement_timeout was reached, or an operator cancelled it: %w", err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("postgres %s: %w", op, err)
}

// on has a query fail on servers of other timelines, and on connections that are not fit (db.On).
func (c *conn) on(least, most int64, query string, args []any) (string, []any) {
	return db.On(c.function("on_timeline"), least, most, query, args)
}
