package etcd

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/store"
)

// A value is "hf1 <nonce, 16 hex digits> <JSON>". The nonce stands first so that
// a Txn can compare it: the values with one nonce are a range of strings. In the JSON the
// time of the grant stands last.
const (
	format    = "hf1 "
	nonceEnd  = len(format) + 16
	jsonStart = nonceEnd + 1
)

// body is the JSON part, but for the time of the grant.
type body struct {
	ID          string            `json:"id"`
	Incarnation string            `json:"inc"`
	Address     string            `json:"addr,omitempty"`
	TTL         int64             `json:"ttl"` // milliseconds
	Metadata    map[string]string `json:"meta,omitempty"`
}

// noncePrefix is how all values of nonce begin, and none else does.
func noncePrefix(nonce uint64) string { return fmt.Sprintf("%s%016x ", format, nonce) }

// nonceAfter is greater than all values of nonce, and than none of a greater one.
func nonceAfter(nonce uint64) string { return fmt.Sprintf("%s%016x!", format, nonce) }

// records are those of a conn, as its values have them.
type records struct {
	conn
	bodies bodies
}

// bodies are those that were read last, by their text. The records of one owner mostly
// have the same body, and there may be very many of them, which every listing reads again.
type bodies struct {
	mu     sync.Mutex
	byText map[string]body
}

// mostBodies bounds how many are kept, those of a few hundred owners, and longestBody how
// long one may be, in bytes.
const (
	mostBodies  = 512
	longestBody = 4096
)

// read returns what text says, behind which closing is missing. The metadata is the
// caller's own.
func (bs *bodies) read(text, closing string) (b body, err error) {
	bs.mu.Lock()
	b, ok := bs.byText[text]
	bs.mu.Unlock()
	if !ok {
		if err := json.Unmarshal([]byte(text+closing), &b); err != nil || len(text) > longestBody {
			return b, err
		}
		bs.mu.Lock()
		defer bs.mu.Unlock()
		if bs.byText == nil || len(bs.byText) >= mostBodies {
			bs.byText = map[string]body{}
		}
		bs.byText[strings.Clone(text)] = b
	}
	b.Metadata = maps.Clone(b.Metadata)
	return b, nil
}

// encode makes the value of a record, but for the time of its grant.
func encode(nonce uint64, o store.Owner, ttl time.Duration, meta map[string]string) string {
	b, _ := json.Marshal(body{o.ID, o.Incarnation, o.Address, ttl.Milliseconds(), meta}) // texts can't fail
	return noncePrefix(nonce) + string(b)
}

// decode reads the record of a key; an error is store.ErrBadRecord, and the
// record then has its name only.
func (rs *records) decode(kv *mvccpb.KeyValue) (store.Record, error) {
	r := store.Record{Name: strings.TrimPrefix(string(kv.Key), rs.prefix)}
	bad := func(what string) (store.Record, error) {
		return r, fmt.Errorf("etcd key %q: %w: %s", kv.Key, store.ErrBadRecord, what)
	}
	v := string(kv.Value)
	switch {
	case !strings.HasPrefix(v, format):
		return bad("a foreign value, or of a newer format")
	case len(v) < jsonStart || v[nonceEnd] != ' ':
		return bad("truncated")
	}
	nonce, err := strconv.ParseUint(v[len(format):nonceEnd], 16, 64)
	if err != nil || v[:jsonStart] != noncePrefix(nonce) { // conditions compare the text
		return bad("its nonce is no number")
	}
	text, granted, ok := stamped(v[jsonStart:])
	closing := ""
	if ok {
		closing = "}"
	}
	b, err := rs.bodies.read(text, closing)
	if err != nil {
		return bad(err.Error())
	}
	switch {
	case b.Incarnation == "":
		return bad("no owner")
	case b.TTL < 0 || b.TTL > int64(math.MaxInt64/time.Millisecond):
		return bad("its TTL is out of bounds")
	case kv.Lease == 0:
		return bad("on no etcd lease: it would never expire")
	}
	r.Owner = store.Owner{ID: b.ID, Incarnation: b.Incarnation, Address: b.Address}
	r.Session, r.Token, r.Nonce = store.SessionID(kv.Lease), store.Token(kv.ModRevision), nonce
	r.Granted = granted
	r.TTL, r.Metadata = time.Duration(b.TTL)*time.Millisecond, b.Metadata
	return r, nil
}

// grantedField is the time of the grant in a value. It stands last in the JSON, so that what
// the records of one owner have in common is one text before it, which is written and read
// once. Versions that know nothing of it pass over the field.
const grantedField = `,"at":`

// stamp adds the time to a value that encode has made, to the millisecond.
func stamp(value string, at time.Time) string {
	return value[:len(value)-1] + grantedField + strconv.FormatInt(at.UnixMilli(), 10) + "}"
}

// stamped takes the time off the JSON of a value: what is before it lacks the closing brace.
// ok is false if there is none.
func stamped(text string) (before string, at time.Time, ok bool) {
	i := strings.LastIndex(text, grantedField)
	if i < 0 || !strings.HasSuffix(text, "}") {
		return text, time.Time{}, false
	}
	ms, err := strconv.ParseInt(text[i+len(grantedField):len(text)-1], 10, 64)
	if err != nil {
		return text, time.Time{}, false
	}
	return text[:i], time.UnixMilli(ms), true
}

// grantedNow is the time of a grant as values have it.
func grantedNow() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }
