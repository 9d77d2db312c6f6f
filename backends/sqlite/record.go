package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// columns are what a record is read of; see scanRecord.
const columns = `l.name, l.format, l.token, l.session, l.nonce, l.granted, l.metadata,
	s.owner, s.incarnation, s.address, s.ttl, s.ends
	FROM holdfast_lease l LEFT JOIN holdfast_session s ON s.id = l.session`

// row is one of holdfast_lease.
type row struct {
	store.Record
	stands bool // it holds its name
	over   bool // its session has ended by the clock
	bad    bool // it is no record of this format
}

// stored are the columns that a lease and a change of one have in common.
type stored struct {
	session, nonce, granted, ttl, ends    sql.NullInt64
	metadata, owner, incarnation, address sql.NullString
}

// dest are where they go, in their order, behind those that come first.
func (c *stored) dest(first ...any) []any {
	return append(first, &c.session, &c.nonce, &c.granted, &c.metadata,
		&c.owner, &c.incarnation, &c.address, &c.ttl, &c.ends)
}

// record is what they say; an error is of the metadata.
func (c *stored) record(name string, token int64, now time.Duration) (store.Record, error) {
	m, err := unpack(c.metadata)
	return store.Record{
		Name: name, Session: store.SessionID(c.session.Int64), Token: store.Token(token),
		Owner: store.Owner{
			ID: c.owner.String, Incarnation: c.incarnation.String, Address: c.address.String},
		Nonce: uint64(c.nonce.Int64), Granted: time.Unix(0, c.granted.Int64), Metadata: m,
		TTL: time.Duration(c.ttl.Int64), Left: max(0, time.Duration(c.ends.Int64)-now),
	}, err
}

// scanRecord reads columns.
func scanRecord(scan func(...any) error, now time.Duration) (r row, err error) {
	var is, token int64
	var c stored
	if err = scan(c.dest(&r.Name, &is, &token)...); err != nil {
		return r, err
	}
	rec, bad := c.record(r.Name, token, now)
	if is != format || token <= 0 || bad != nil {
		return row{Record: store.Record{Name: r.Name}, stands: true, bad: true}, nil
	}
	r.Record, r.stands = rec, c.ends.Valid && c.ends.Int64 > int64(now)
	r.over = c.ends.Valid && !r.stands
	return r, nil
}

// record returns what stands under a name. One whose session is over is returned as well, with
// stands false.
func (l *link) record(name string, now time.Duration) (r row, found bool, err error) {
	err = l.each("SELECT "+columns+" WHERE l.name = ?", []any{name}, func(scan func(...any) error) (err error) {
		found = true
		r, err = scanRecord(scan, now)
		return err
	})
	return r, found, err
}

// err is the error for a row that is no record.
func (r row) err() error {
	if r.bad {
		return fmt.Errorf("%q: %w", r.Name, store.ErrBadRecord)
	}
	return nil
}

// public is what a refusal tells: nothing of what does not stand.
func (r row) public() store.Record {
	if !r.stands {
		return store.Record{}
	}
	return r.Record
}

// is reports whether r is that very ownership.
func (r row) is(h store.Held) bool { return r.stands && !r.bad && r.Held() == h }

// pack is the metadata as it is written: nil, or JSON.
func pack(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings only
	}
	return string(b)
}

var errNull = errors.New("null")

func unpack(text sql.NullString) (m map[string]string, err error) {
	if !text.Valid {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text.String), &m)
	if err == nil && m == nil {
		err = errNull
	}
	return m, err
}

var limits = store.Limits{
	Name: "sqlite", Batch: 500, MaxMetadata: 1 << 20, MaxTTL: input.Longest,
	While: true, BySession: true, Prompt: true,
}
