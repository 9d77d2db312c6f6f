package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/store"
)

// format is that of the rows that this version writes and reads.
const format = 1

// row is a row of holdfast.record, or what a function tells of one.
type row struct {
	name                        string
	format, session, rev, nonce int64
	meta                        *string
	owner                       store.Owner
	ttl, left, since            int64
}

// columns are what a change of a record and the record itself have in common, and times what only that has.
const (
	columns = "coalesce(name, ''), coalesce(format, 0)::bigint, coalesce(session, 0), coalesce(rev, 0), coalesce(nonce, 0), meta, " +
		"coalesce(owner, ''), coalesce(incarnation, ''), coalesce(address, ''), coalesce(ttl, 0)"
	times = ", coalesce(left_ms, 0), coalesce(since_us, 0)"
)

// common are where columns go, behind those that come first, and dest those of times, too.
func (r *row) common(first ...any) []any {
	return append(first, &r.name, &r.format, &r.session, &r.rev, &r.nonce, &r.meta,
		&r.owner.ID, &r.owner.Incarnation, &r.owner.Address, &r.ttl)
}

func (r *row) dest(first ...any) []any { return append(r.common(first...), &r.left, &r.since) }

// record is what the row says; an error is store.ErrBadRecord, and the record then has its name
// only.
func (r *row) record() (store.Record, error) {
	rec := store.Record{
		Name: r.name,
		Owner: store.Owner{ID: db.Unescape(r.owner.ID), Incarnation: db.Unescape(r.owner.Incarnation),
			Address: db.Unescape(r.owner.Address)},
		Session: store.SessionID(r.session), Token: store.Token(r.rev), Nonce: uint64(r.nonce),
		TTL: time.Duration(r.ttl) * time.Millisecond, Left: time.Duration(r.left) * time.Millisecond,
		Granted: time.UnixMicro(r.since),
	}
	var err error
	if r.meta != nil && *r.meta != "{}" {
		err = json.Unmarshal([]byte(*r.meta), &rec.Metadata)
	}
	switch {
	case r.format != format:
		err = errors.New("a row of another format")
	case r.session == 0 || r.rev <= 0 || r.owner.Incarnation == "" || r.ttl == 0:
		err = errors.New("a row without a session, a token or an owner")
	}
	if err != nil {
		return store.Record{Name: r.name}, fmt.Errorf("postgres: lease %q: %w: %w", r.name, store.ErrBadRecord, err)
	}
	return rec, nil
}

// pack makes the text of metadata; nil if there are none.
func pack(m map[string]string) *string {
	if len(m) == 0 {
		return nil
	}
	b, _ := json.Marshal(m) // a map of strings can't fail
	return new(string(b))
}
