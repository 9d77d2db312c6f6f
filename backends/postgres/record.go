package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/store"
)

// format is that of the rows that this version writes and reads.
const format = 1

// row is a row of holdfast.record.
type row struct {
	name                              string
	format                            int64
	session, rev, nonce, ttl          *int64
	meta, owner, incarnation, address *string
	left, since                       *int64
}

// dest are where its columns go, in their order.
func (r *row) dest() []any {
	return []any{&r.name, &r.format, &r.session, &r.rev, &r.nonce, &r.meta,
		&r.owner, &r.incarnation, &r.address, &r.ttl, &r.left, &r.since}
}

const columns = "name, format::bigint, session, rev, nonce, meta, owner, incarnation, address, ttl, left_ms, since_us"

// record is what the row says; an error is store.ErrBadRecord, and the record then has its name
// only.
func (r *row) record() (store.Record, error) {
	bad := func(what string) (store.Record, error) {
		return store.Record{Name: r.name}, fmt.Errorf("postgres: lease %q: %w: %s", r.name, store.ErrBadRecord, what)
	}
	switch {
	case r.format != format:
		return bad("a row of another format")
	case r.session == nil || r.rev == nil || *r.rev <= 0 || r.nonce == nil:
		return bad("a row without a session, token or nonce")
	case r.incarnation == nil || *r.incarnation == "" || r.ttl == nil:
		return bad("no owner")
	}
	meta, err := unpack(r.meta)
	if err != nil {
		return bad(err.Error())
	}
	rec := store.Record{
		Name: r.name,
		Owner: store.Owner{ID: db.Unescape(text(r.owner)), Incarnation: db.Unescape(text(r.incarnation)),
			Address: db.Unescape(text(r.address))},
		Session: store.SessionID(*r.session), Token: store.Token(*r.rev), Nonce: uint64(*r.nonce),
		TTL: time.Duration(*r.ttl) * time.Millisecond, Metadata: meta,
	}
	if r.left != nil {
		rec.Left = time.Duration(*r.left) * time.Millisecond
	}
	if r.since != nil {
		rec.Granted = time.UnixMicro(*r.since)
	}
	return rec, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// pack makes the text of metadata; nil if there are none.
func pack(m map[string]string) (*string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	t := string(b)
	return &t, nil
}

func unpack(t *string) (m map[string]string, err error) {
	if t == nil {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(*t), &m); err != nil {
		return nil, err
	}
	if len(m) == 0 {
		return nil, nil
	}
	return m, nil
}
