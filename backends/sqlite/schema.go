package sqlite

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	lib "modernc.org/sqlite/lib"
)

// version is that of the tables. A program refuses others.
const version = 1

// format is that of a record. One of another holds its name.
const format = 1

// kept is how many changes are kept for watches.
const kept = 20_000

// schema makes the tables. Triggers write the log of changes, so that a row that is put or deleted
// by hand reaches watches, too: DELETE FROM holdfast_lease WHERE name = 'job' is a release,
// under any program.
const schema = `
CREATE TABLE holdfast_meta (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	version INTEGER NOT NULL,
	id TEXT NOT NULL,        -- of the generation
	file TEXT NOT NULL,      -- which file that is: a copy is another one
	boot TEXT NOT NULL,      -- of the machine: sessions of another one have ended
	last INTEGER NOT NULL    -- the last token or revision that was issued
) STRICT;
CREATE TABLE holdfast_session (
	id INTEGER PRIMARY KEY,
	owner TEXT NOT NULL, incarnation TEXT NOT NULL, address TEXT NOT NULL,
	ttl INTEGER NOT NULL,    -- nanoseconds
	ends INTEGER NOT NULL    -- CLOCK_BOOTTIME in nanoseconds: from then on it is gone
) STRICT;
CREATE TABLE holdfast_lease (
	name TEXT PRIMARY KEY COLLATE BINARY,
	format INTEGER NOT NULL,
	token INTEGER NOT NULL,
	session INTEGER NOT NULL,
	nonce INTEGER NOT NULL,
	granted INTEGER NOT NULL, -- nanoseconds since 1970, for people
	metadata TEXT             -- JSON; NULL: none
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_lease_session ON holdfast_lease (session);
CREATE INDEX holdfast_session_ends ON holdfast_session (ends); -- for the sweep that each write begins with
CREATE TABLE holdfast_change (
	seq INTEGER PRIMARY KEY,
	rev INTEGER NOT NULL,
	kind INTEGER NOT NULL,    -- 1: put, 2: deleted, 3: what is no record of this format
	name TEXT NOT NULL,
	session INTEGER, nonce INTEGER, granted INTEGER, metadata TEXT,
	owner TEXT, incarnation TEXT, address TEXT, ttl INTEGER
) STRICT;
CREATE TRIGGER holdfast_put AFTER INSERT ON holdfast_lease WHEN NEW.format = 1 BEGIN
	INSERT INTO holdfast_change (rev, kind, name, session, nonce, granted, metadata, owner, incarnation, address, ttl)
	SELECT NEW.token, 1, NEW.name, NEW.session, NEW.nonce, NEW.granted, NEW.metadata, owner, incarnation, address, ttl
	FROM holdfast_session WHERE id = NEW.session;
END;
CREATE TRIGGER holdfast_bad AFTER INSERT ON holdfast_lease WHEN NEW.format <> 1 BEGIN
	UPDATE holdfast_meta SET last = last + 1;
	INSERT INTO holdfast_change (rev, kind, name) SELECT last, 3, NEW.name FROM holdfast_meta;
END;
CREATE TRIGGER holdfast_delete AFTER DELETE ON holdfast_lease BEGIN
	UPDATE holdfast_meta SET last = last + 1;
	INSERT INTO holdfast_change (rev, kind, name) SELECT last, 2, OLD.name FROM holdfast_meta;
END;
`

// prepare makes the tables unless they are there, in a transaction, or, unless it begins a generation,
// returns an error that is errOtherGeneration.
func prepare(l *link, begin bool) error {
	var tables int
	const there = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'holdfast_meta'"
	if err := l.get(there, nil, &tables); err != nil {
		return err
	}
	switch {
	case tables > 0:
		return nil
	case !begin: // an old copy was restored in place: the file is the same one
		return errOtherGeneration
	}
	if _, err := l.conn.ExecContext(background, schema); err != nil {
		err = fmt.Errorf("the tables can't be made: %w", err)
		if code(err) == lib.SQLITE_ERROR { // some are there, without the one that tells their version
			err = fmt.Errorf("%w: %w", ErrSchema, err)
		}
		return err
	}
	return l.exec("INSERT INTO holdfast_meta VALUES (1, ?, '', '', '', 0)", version)
}

// whole returns an error that is ErrSchema if a table or a trigger is missing.
func whole(l *link) error {
	const missing = `SELECT coalesce(group_concat(column1 || ' ' || column2, ', '), '') FROM (VALUES
		('table', 'holdfast_meta'), ('table', 'holdfast_session'), ('table', 'holdfast_lease'), ('table', 'holdfast_change'),
		('trigger', 'holdfast_put'), ('trigger', 'holdfast_bad'), ('trigger', 'holdfast_delete'))
		WHERE NOT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = column1 AND name = column2)`
	var names string
	if err := l.get(missing, nil, &names); err != nil {
		return err
	}
	if names != "" {
		return fmt.Errorf("%w: of them are missing: %s", ErrSchema, names)
	}
	return nil
}

// meta is the one row about the file.
type meta struct {
	id, file, boot string
	last           int64
}

// readMeta returns an error that is ErrSchema if the tables are not of this version.
func readMeta(l *link) (m meta, err error) {
	var is int
	err = l.get("SELECT version, id, file, boot, last FROM main.holdfast_meta", nil, &is, &m.id, &m.file, &m.boot, &m.last)
	switch {
	case errors.Is(err, sql.ErrNoRows), code(err) == lib.SQLITE_ERROR: // no row, no such table or column
		err = fmt.Errorf("%w: %w", ErrSchema, err)
	case err == nil:
		err = known(is)
	}
	return m, err
}

// known returns an error that is ErrSchema unless the tables have the version that this program knows.
func known(is int) error {
	if is == version {
		return nil
	}
	return fmt.Errorf("%w: %d, this program knows %d", ErrSchema, is, version)
}

// beginGeneration ends all sessions: no process is left that believes in one. Tokens go on. Where only
// the file beside it was lost, the generation is still the one that it was.
func (m meta) beginGeneration(l *link, file, boot string) (id string, err error) {
	if m.id != "" && m.file == file && m.boot == boot {
		return m.id, nil
	}
	id = rand.Text()
	for _, q := range []string{
		fmt.Sprintf("DELETE FROM holdfast_lease WHERE format = %d", format),
		"DELETE FROM holdfast_session",
		fmt.Sprintf("DELETE FROM holdfast_change WHERE seq <= (SELECT max(seq) FROM holdfast_change) - %d", kept),
	} {
		if err := l.exec(q); err != nil {
			return "", err
		}
	}
	return id, l.exec("UPDATE holdfast_meta SET id = ?, file = ?, boot = ?", id, file, boot)
}

// is returns an error unless the file is the one that was opened, used by this machine. seen is
// a token that was seen before m was read.
func (m meta) is(c clock, id string, seen int64) error {
	switch {
	case m.boot != c.boot:
		return otherMachine(m.boot, c)
	case m.id != id:
		return fmt.Errorf("%w: it is of another generation", ErrReplaced)
	case m.last < seen:
		return fmt.Errorf("%w: its tokens went back from %d to %d: an older copy was written over it",
			ErrReplaced, seen, m.last)
	}
	return nil
}

func otherMachine(boot string, c clock) error {
	return fmt.Errorf("%w: it is used under the boot %.36s, this is %.36s", ErrOtherMachine, boot, c.boot)
}
