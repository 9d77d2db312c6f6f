package observed

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Objects is a store of small objects, each linearizable by itself. It is safe for
// concurrent use and honours the context's deadline. An error always means that
// nothing is known: a write may or may not be applied, now or later. Values that
// are passed or returned are not changed afterwards by either side.
//
// It may also be Numbered and Limited.
type Objects interface {
	// Get returns the object as it stands; false if there is none.
	Get(ctx context.Context, key string) (Object, bool, error)
	// Put writes value if the object has the version ifVersion or, if that is empty,
	// if there is no object; it returns the new version. false: that was surely not
	// so, and nothing was or will be written.
	Put(ctx context.Context, key string, value []byte, ifVersion string) (version string, ok bool, err error)
	// Delete removes the object if it has the version ifVersion, which is not empty.
	// false: that was surely not so.
	Delete(ctx context.Context, key, ifVersion string) (bool, error)
	// List yields each object whose key begins with prefix, once, in any order: all
	// that stand throughout the call, as they stood at some moment of it. An error
	// ends it and means that it is incomplete.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is one object as it was read.
type Object struct {
	Key   string
	Value []byte
	// Version is not empty, and another for each value that the key ever had.
	Version string
}

// Numbered is implemented by Objects whose versions are numbers that grow for ever.
type Numbered interface {
	// Number returns the number of a version: positive, and higher than that of
	// every earlier write of the key, also when it was deleted in between. An error
	// means that version is no such number.
	Number(version string) (store.Token, error)
}

// Limited is implemented by Objects that bound what a Store over them is asked for: keys by CheckName,
// which may go by Key, and values by MaxMetadata, which is beside some hundred bytes, and the owner.
type Limited interface {
	Limits() store.Limits
}

// format is written in every object; what bears another is no record to this version.
const format = 1

const (
	sessionPrefix = "sessions/"
	recordPrefix  = "records/"
)

// session is the value of a session's object. Whole numbers that may be large are
// written as text, since some readers of JSON round them.
type session struct {
	Format      int           `json:"v"`
	ID          string        `json:"id"`
	Incarnation string        `json:"inc"`
	Address     string        `json:"addr,omitempty"`
	TTL         time.Duration `json:"ttl,string"`  // granted; nanoseconds
	Life        uint64        `json:"life,string"` // drawn when it was opened
	Beat        uint64        `json:"beat,string"` // counts the renewals
}

func (o session) owner() store.Owner {
	return store.Owner{ID: o.ID, Incarnation: o.Incarnation, Address: o.Address}
}

// record is the value of a record's object. One without a session is a tombstone: the
// name is free.
type record struct {
	Format   int               `json:"v"`
	Name     string            `json:"name"`
	Token    store.Token       `json:"token,string"` // counted; 0 where the version is the token
	Session  store.SessionID   `json:"session,string"`
	Life     uint64            `json:"life,string"`
	Nonce    uint64            `json:"nonce,string"`
	Metadata map[string]string `json:"meta,omitempty"`
	Granted  int64             `json:"at,omitempty"` // milliseconds, by the wall clock of who claimed it: for people
	Holder   string            `json:"by,omitempty"` // the owner's ID, for people: the session says whose it is
}

func encode(v any) []byte {
	b, _ := json.Marshal(v) // texts and numbers always can be marshalled
	return b
}

// decodeSession reads a session's object; an error is store.ErrBadRecord.
func decodeSession(value []byte) (o session, err error) {
	err = json.Unmarshal(value, &o)
	switch {
	case err != nil:
	case o.Format != format:
		err = fmt.Errorf("format %d", o.Format)
	case o.Incarnation == "":
		err = fmt.Errorf("no owner")
	case o.TTL <= 0:
		err = fmt.Errorf("TTL %v", o.TTL)
	}
	if err != nil {
		return session{}, fmt.Errorf("%w: its session is none that this version can read: %v", store.ErrBadRecord, err)
	}
	return o, nil
}

// decodeRecord reads the object under name; an error is store.ErrBadRecord.
func decodeRecord(name string, value []byte, counted bool) (r record, err error) {
	err = json.Unmarshal(value, &r)
	switch {
	case err != nil:
	case r.Format != format:
		err = fmt.Errorf("format %d", r.Format)
	case r.Name != name:
		err = fmt.Errorf("it is of the name %.64q", r.Name)
	case r.Session < 0:
		err = fmt.Errorf("session %d", r.Session)
	case counted != (r.Token > 0) || r.Token > math.MaxInt64:
		err = fmt.Errorf("token %d, and tokens are counted: %v", r.Token, counted)
	}
	if err != nil {
		return record{Name: name}, fmt.Errorf("%q: %w: %v", name, store.ErrBadRecord, err)
	}
	return r, nil
}

func sessionKey(id store.SessionID) string { return fmt.Sprint(sessionPrefix, int64(id)) }

// Key is the key of the object of a name.
func Key(name string) string { return recordPrefix + escape(name) }

// escape makes a key of a name, or the beginning of a key of that of a name: byte by
// byte, and in small letters only, for stores that fold their case.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// unescape is the name of a key; false if escape made no such key.
func unescape(key string) (string, bool) {
	name, _ := url.PathUnescape(strings.ReplaceAll(key, "_", "%"))
	return name, escape(name) == key
}
