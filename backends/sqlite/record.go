package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// described are the columns of a record that a lease, beside its session, and a change of one have in
// common; see scanRecord.
const described = `name, coalesce(session, 0), coalesce(nonce, 0), coalesce(granted, 0), metadata,
	coalesce(owner, ''), coalesce(incarnation, ''), coalesce(address, ''), coalesce(ttl, 0)`

// scanRecord reads described, and what follows these columns into more. bad: the metadata are no such.
func scanRecord(scan func(...any) error, more ...any) (r store.Record, bad bool, err error) {
	var nonce, granted int64
	var metadata sql.NullString
	err = scan(append([]any{&r.Name, &r.Session, &nonce, &granted, &metadata,
		&r.Owner.ID, &r.Owner.Incarnation, &r.Owner.Address, &r.TTL}, more...)...)
	r.Nonce, r.Granted = uint64(nonce), time.Unix(0, granted)
	bad = metadata.Valid && json.Unmarshal([]byte(metadata.String), &r.Metadata) != nil
	return r, bad, err
}

// selected are what a row is read of.
const selected = "SELECT " + described + `, format, token, coalesce(ends, 0)
	FROM holdfast_lease LEFT JOIN holdfast_session ON id = session`

// row is one of holdfast_lease.
type row struct {
	store.Record
	stands bool // it holds its name; else its session is over by the clock
	bad    bool // it is no record of this format
}

// rows returns those of selected, with the rest of the query, that want says.
func (l *link) rows(rest string, now time.Duration, want func(row) bool, args ...any) (found []row, err error) {
	err = l.each(selected+rest, args, func(scan func(...any) error) error {
		var is, token int64
		var ends time.Duration
		rec, bad, err := scanRecord(scan, &is, &token, &ends)
		rec.Token, rec.Left = store.Token(token), max(0, ends-now)
		r := row{Record: rec, stands: ends > now}
		if is != format || token <= 0 || bad {
			r = row{Record: store.Record{Name: rec.Name}, stands: true, bad: true}
		}
		if err == nil && want(r) {
			found = append(found, r)
		}
		return err
	})
	return found, err
}

// record returns what there is under a name. Of what does not stand the Record is empty.
func (l *link) record(name string, now time.Duration) (r row, found bool, err error) {
	_, err = l.rows(" WHERE name = ?", now, func(is row) bool {
		found = true
		if is.stands {
			r = is
		}
		return false
	}, name)
	return r, found, err
}

// err is the error for a row that is no record.
func (r row) err() error {
	if r.bad {
		return fmt.Errorf("%q: %w", r.Name, store.ErrBadRecord)
	}
	return nil
}

// is reports whether r is that very ownership.
func (r row) is(h store.Held) bool { return r.stands && !r.bad && r.Held() == h }

// pack is the metadata as it is written: nil, or JSON.
func pack(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	b, _ := json.Marshal(m) // a map of strings can't fail
	return string(b)
}

// limits: it is not Prompt, as a call waits for a disk that hangs. A Keeper leaves such a call behind.
var limits = store.Limits{
	Name: "sqlite", Batch: 500, MaxMetadata: 1 << 20, MaxTTL: input.Longest, While: true, BySession: true,
}
