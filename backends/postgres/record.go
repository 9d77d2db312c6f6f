package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
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

// record is what the row says; an error is lease.ErrBadRecord, and the record then has its name
// only.
func (r *row) record() (lease.Record, error) {
	bad := func(what string) (lease.Record, error) {
		return lease.Record{Name: r.name}, fmt.Errorf("postgres: lease %q: %w: %s", r.name, lease.ErrBadRecord, what)
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
	rec := lease.Record{
		Name:    r.name,
		Owner:   lease.Owner{ID: unescape(text(r.owner)), Incarnation: unescape(text(r.incarnation)), Address: unescape(text(r.address))},
		Session: lease.SessionID(*r.session), Token: lease.Token(*r.rev), Nonce: uint64(*r.nonce),
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

// A text of the database has no NUL.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)

func escape(s string) string   { return escaper.Replace(s) }
func unescape(s string) string { return unescaper.Replace(s) }

// Arrays are sent as the texts of them, which every driver can send.

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array makes an array of n elements; f returns nil for NULL.
func array(n int, f func(i int) *string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if t := f(i); t == nil {
			b.WriteString("NULL")
		} else {
			b.WriteByte('"')
			_, _ = quoter.WriteString(&b, *t)
			b.WriteByte('"')
		}
	}
	b.WriteByte('}')
	return b.String()
}

func texts[T any](of []T, f func(T) string) string {
	return array(len(of), func(i int) *string { t := f(of[i]); return &t })
}

func numbers[T any](of []T, f func(T) int64) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, x := range of {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(f(x), 10))
	}
	b.WriteByte('}')
	return b.String()
}
