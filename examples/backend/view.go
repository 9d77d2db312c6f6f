package backend

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/holdfast-go/holdfast/store"
)

// view is a transaction at one moment. Its first error ends it, with nothing applied.
type view struct {
	s   *Store
	tx  *bolt.Tx
	now time.Time
	err error
}

// write runs f in a transaction, after it has removed the sessions that are over.
func (s *Store) write(ctx context.Context, f func(v *view) error) error {
	return s.run(ctx, s.db.Update, func(v *view) error {
		v.sweep()
		return f(v)
	})
}

// read runs f in a transaction that writes nothing.
func (s *Store) read(ctx context.Context, f func(v *view) error) error {
	return s.run(ctx, s.db.View, f)
}

func (s *Store) run(ctx context.Context, begin func(func(*bolt.Tx) error) error, f func(v *view) error) error {
	if ctx == nil {
		err := fmt.Errorf("ctx: %w: nil", store.ErrInvalid)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return fmt.Errorf("bbolt: %w", ctx.Err())
	}
	return begin(func(tx *bolt.Tx) error {
		v := &view{s: s, tx: tx, now: time.Now()}
		if err := f(v); err != nil {
			return err
		}
		return v.err
	})
}

func (v *view) keep(err error) {
	if v.err == nil {
		v.err = err
	}
}

// session returns an open session.
func (v *view) session(id store.SessionID) (o store.Session, stands bool) {
	b := v.tx.Bucket(sessions).Get(key(id, ""))
	if b == nil || v.over(id) {
		return o, false
	}
	v.keep(json.Unmarshal(b, &o))
	return o, v.err == nil
}

// live is session for one that must be of the same incarnation, and of this store.
func (v *view) live(want store.Session) (o store.Session, ok bool) {
	o, ok = v.session(want.ID)
	return o, ok && o.Owner.Incarnation == want.Owner.Incarnation
}

func (v *view) over(id store.SessionID) bool {
	deadline, known := v.s.deadlines[id]
	return known && !v.now.Before(deadline)
}

// renew has the session end a TTL from now, if the transaction is applied.
func (v *view) renew(o store.Session) (ttl time.Duration) {
	v.tx.OnCommit(func() { v.s.deadlines[o.ID] = v.now.Add(o.TTL) })
	return o.TTL
}

// sweep removes the sessions that are over. One of an earlier process has a TTL from now.
func (v *view) sweep() {
	var over []store.SessionID
	v.keep(v.tx.Bucket(sessions).ForEach(func(_, b []byte) error {
		var o store.Session
		if err := json.Unmarshal(b, &o); err != nil {
			return err
		}
		if _, known := v.s.deadlines[o.ID]; !known {
			v.s.deadlines[o.ID] = v.now.Add(o.TTL)
		}
		if v.over(o.ID) {
			over = append(over, o.ID)
		}
		return nil
	}))
	for _, id := range over {
		v.end(id)
	}
}

// end removes a session and what is held under it.
func (v *view) end(id store.SessionID) {
	for _, name := range v.names(id) {
		v.drop(id, name)
	}
	v.keep(v.tx.Bucket(sessions).Delete(key(id, "")))
	v.tx.OnCommit(func() { delete(v.s.deadlines, id) })
}

// names returns what is held under a session.
func (v *view) names(id store.SessionID) (all []string) {
	c, prefix := v.tx.Bucket(held).Cursor(), key(id, "")
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		all = append(all, string(k[len(prefix):]))
	}
	return all
}

// under returns what has a prefix.
func (v *view) under(prefix string) (all []string) {
	c := v.tx.Bucket(records).Cursor()
	for k, _ := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, _ = c.Next() {
		all = append(all, string(k))
	}
	return all
}

// record returns what stands under a name; nothing but that if it is no record of this format.
func (v *view) record(name string) (r store.Record, stands bool) {
	b := v.tx.Bucket(records).Get([]byte(name))
	if b == nil {
		return r, false
	}
	var x record
	if json.Unmarshal(b, &x) != nil || x.Format != format {
		return store.Record{Name: name}, true
	}
	if deadline, known := v.s.deadlines[x.Session]; known {
		x.Left = deadline.Sub(v.now)
	}
	if v.over(x.Session) {
		return r, false
	}
	return x.Record, true
}

// is reports whether that very ownership stands.
func (v *view) is(h store.Held) bool {
	r, _ := v.record(h.Name)
	return r.Token != 0 && r.Held() == h
}

// give has a name stand for o, under a new token, in the place of old.
func (v *view) give(old store.Record, o store.Session, r store.Record) store.Record {
	if old.Token != 0 {
		v.drop(old.Session, old.Name)
	}
	token, err := v.tx.Bucket(records).NextSequence()
	v.keep(err)
	r.Owner, r.Session, r.TTL, r.Token, r.Granted = o.Owner, o.ID, o.TTL, store.Token(token), v.now.Round(0)
	v.put(records, []byte(r.Name), record{format, r})
	v.keep(v.tx.Bucket(held).Put(key(o.ID, r.Name), nil))
	return r
}

// drop removes a record.
func (v *view) drop(id store.SessionID, name string) {
	v.keep(v.tx.Bucket(held).Delete(key(id, name)))
	v.keep(v.tx.Bucket(records).Delete([]byte(name)))
}

func (v *view) put(bucket, key []byte, value any) {
	b, err := json.Marshal(value)
	v.keep(err)
	v.keep(v.tx.Bucket(bucket).Put(key, b))
}

// key is of a session, and of what is held under it.
func key(id store.SessionID, name string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(id)), name...)
}

// gone is the error of what needs a session that is over.
func gone(o store.Session) error {
	return fmt.Errorf("bbolt: session %d of %s: %w", o.ID, o.Owner.ID, store.ErrSessionGone)
}
