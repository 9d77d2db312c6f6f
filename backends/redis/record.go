package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// format begins what this version writes and reads. The scripts know it, too.
const format = "hf1"

// row is what a script tells of a name that is held.
type row struct {
	name, value, owner string
	left               time.Duration
}

// rowOf reads name, value, owner, and milliseconds left. What is no row is no record either.
func rowOf(v any) row {
	parts := append(list(v), "", "", "", "")
	return row{text(parts[0]), text(parts[1]), text(parts[2]), time.Duration(number(parts[3])) * time.Millisecond}
}

func rowsOf(parts []any) (rows []row) {
	for _, p := range parts {
		rows = append(rows, rowOf(p))
	}
	return rows
}

// record is what a row says. An error is store.ErrBadRecord, and the record then has its name only.
func (r row) record() (store.Record, error) {
	rec, err := r.parse()
	if err != nil {
		return store.Record{Name: r.name}, fmt.Errorf("redis: lease %q: %w: %w", r.name, store.ErrBadRecord, err)
	}
	return rec, nil
}

func (r row) parse() (store.Record, error) {
	rec := store.Record{Name: r.name, Left: r.left}
	f, o := strings.SplitN(r.value, " ", 6), strings.Split(r.owner, " ")
	switch {
	case len(f) != 6 || f[0] != format:
		return rec, errors.New("a value of another format")
	case len(o) != 5 || o[0] != format:
		return rec, errors.New("its session is of another format")
	}
	token, err1 := strconv.ParseInt(f[1], 10, 64)
	nonce, err2 := strconv.ParseUint(f[2], 16, 64)
	session, err3 := strconv.ParseInt(f[3], 10, 64)
	granted, err4 := strconv.ParseInt(f[4], 10, 64)
	ttl, err5 := strconv.ParseInt(o[1], 10, 64)
	var err6 error
	if f[5] != "" {
		err6 = json.Unmarshal([]byte(f[5]), &rec.Metadata)
	}
	for i, to := range []*string{&rec.Owner.Incarnation, &rec.Owner.ID, &rec.Owner.Address} {
		text, err := url.QueryUnescape(o[2+i])
		err6 = errors.Join(err6, err)
		*to = text
	}
	rec.Token, rec.Nonce, rec.Session = store.Token(token), nonce, store.SessionID(session)
	rec.TTL, rec.Granted = time.Duration(ttl)*time.Millisecond, time.UnixMicro(granted)
	return rec, errors.Join(err1, err2, err3, err4, err5, err6)
}

// pack makes the text of metadata; empty if there are none.
func pack(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	b, _ := json.Marshal(m) // a map of strings can't fail
	return string(b)
}

// ownerText is what a session's hash has of it. url.QueryEscape leaves no space.
func ownerText(s store.Session) string {
	return fmt.Sprintf("%s %d %s %s %s", format, milliseconds(s.TTL),
		url.QueryEscape(s.Owner.Incarnation), url.QueryEscape(s.Owner.ID), url.QueryEscape(s.Owner.Address))
}

func incarnation(o store.Owner) string { return url.QueryEscape(o.Incarnation) }

// milliseconds rounds up: a TTL may be longer than asked for, and not shorter.
func milliseconds(d time.Duration) int64 { return int64((d-1)/time.Millisecond) + 1 }

func nonceText(n uint64) string { return fmt.Sprintf("%016x", n) }
