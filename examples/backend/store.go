// Package backend is a store.Store over a bbolt database, written to be read. It serves the
// Keepers of one process, as bbolt lets one process open a file; what was held when that ended
// stands for a TTL of the next one.
package backend

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/holdfast-go/holdfast/store"
)

// The buckets of the database. The sequence of records is the last token that was issued.
var (
	sessions = []byte("sessions") // session → store.Session
	records  = []byte("records")  // name → record
	held     = []byte("held")     // session and name → nothing
)

// record is what stands under a name. One of another format holds its name all the same.
type record struct {
	Format int
	store.Record
}

const format = 1

// Store keeps leases in a database. Make one with New. It is safe for concurrent use.
type Store struct {
	db *bolt.DB

	mu        sync.Mutex
	deadlines map[store.SessionID]time.Time // by the monotonic clock of this process
}

// New returns a Store in db, which has no other Store and stays the caller's to close. Without
// syncs (bolt.Options.NoSync) a crash could have tokens issued twice.
func New(db *bolt.DB) (*Store, error) {
	s := &Store{db: db, deadlines: map[store.SessionID]time.Time{}}
	err := db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{sessions, records, held} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil { // the deadlines of what is held begin, also if nothing is written for long
		err = s.write(context.Background(), func(*view) error { return nil })
	}
	return s, err
}

// Limits implements store.Store.
func (s *Store) Limits() store.Limits { return limits }

var limits = store.Limits{Name: "bbolt", While: true, BySession: true}

// OpenSession implements store.Store.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (grant store.Grant, err error) {
	if err := limits.ValidateSession(want); err != nil {
		return grant, err
	}
	err = s.write(ctx, func(v *view) error {
		o, stands := v.session(want.ID)
		switch {
		case !stands:
			o = want
			v.put(sessions, key(o.ID, ""), o)
		case o.Owner.Incarnation != want.Owner.Incarnation:
			return fmt.Errorf("bbolt: session %d: %w: it is of another incarnation", o.ID, store.ErrInvalid)
		}
		grant.TTL = v.renew(o)
		return nil
	})
	return grant, err
}

// CloseSession implements store.Store.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	return s.write(ctx, func(v *view) error {
		if _, ok := v.live(want); ok {
			v.end(want.ID)
		}
		return nil
	})
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, want []store.Session) (grants []store.Grant, err error) {
	grants = make([]store.Grant, len(want))
	err = s.write(ctx, func(v *view) error {
		for i := range want {
			if o, ok := v.live(want[i]); ok {
				grants[i].TTL = v.renew(o)
			} else {
				grants[i].Err = gone(want[i])
			}
		}
		return nil
	})
	return grants, err
}

// Acquire implements store.Store.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) (out []store.Outcome, err error) {
	out = make([]store.Outcome, len(claims))
	err = s.write(ctx, func(v *view) error {
		o, ok := v.live(want)
		if !ok {
			return gone(want)
		}
		for i, c := range claims {
			r, stands := v.record(c.Name)
			own := stands && c.Supersedes != 0 && c.Supersedes == r.Token && r.Owner.Incarnation == o.Owner.Incarnation
			if out[i].Err = limits.ValidateClaim(c); out[i].Err != nil {
				continue
			}
			switch {
			case stands && r.Token == 0:
				out[i] = store.Outcome{Record: r, Err: fmt.Errorf("bbolt: %q: %w", c.Name, store.ErrBadRecord)}
			case c.While != (store.Held{}) && !v.is(c.While):
				out[i] = store.Outcome{Record: r, Err: fmt.Errorf("bbolt: %q: %w", c.Name, store.ErrParentLost)}
			case stands && !own:
				out[i].Record = r
			default:
				out[i] = store.Outcome{OK: true, Record: v.give(r, o, store.Record{Name: c.Name, Nonce: c.Nonce, Metadata: c.Metadata})}
				if own {
					out[i].Replaced = c.Supersedes
				}
			}
		}
		return nil
	})
	return out, err
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, want []store.Held) (out []store.Outcome, err error) {
	out = make([]store.Outcome, len(want))
	err = s.write(ctx, func(v *view) error {
		for i, h := range want {
			r, _ := v.record(h.Name)
			if out[i].Record = r; v.is(h) {
				v.drop(r.Session, r.Name)
				out[i] = store.Outcome{OK: true}
			}
		}
		return nil
	})
	return out, err
}

// Transfer implements store.Transferrer.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) (out []store.Outcome, err error) {
	out = make([]store.Outcome, len(moves))
	err = s.write(ctx, func(v *view) error {
		for i, m := range moves {
			r, _ := v.record(m.Name)
			if out[i].Record = r; !v.is(m.Held) {
				continue
			}
			if out[i].Err = limits.ValidateTransfer(m); out[i].Err != nil {
				continue
			}
			to := store.Session{ID: m.To.Session, Owner: m.To.Owner}
			o, ok := v.live(to)
			if !ok {
				out[i].Err = gone(to)
				continue
			}
			next := store.Record{Name: m.Name, Nonce: m.To.Nonce, Metadata: m.Metadata}
			if m.Metadata == nil {
				next.Metadata = r.Metadata
			}
			out[i] = store.Outcome{OK: true, Record: v.give(r, o, next)}
		}
		return nil
	})
	return out, err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, names ...string) (found []store.Record, err error) {
	err = s.read(ctx, func(v *view) error {
		for _, name := range names {
			if r, stands := v.record(name); stands {
				found = append(found, r)
			}
		}
		return nil
	})
	return found, err
}

// List implements store.Store. The loop's body may call the Store: all has been read by then.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		var found []store.Record
		err := s.read(ctx, func(v *view) error {
			names := v.under(q.Prefix)
			if q.Session != 0 {
				if _, ok := v.session(q.Session); !ok {
					return gone(store.Session{ID: q.Session})
				}
				names = v.names(q.Session)
			}
			for _, name := range names {
				if r, stands := v.record(name); stands {
					found = append(found, r)
				}
			}
			return nil
		})
		for _, r := range found {
			var bad error
			if r.Token == 0 {
				bad = fmt.Errorf("bbolt: %q: %w", r.Name, store.ErrBadRecord)
			}
			if err = cmp.Or(err, ctx.Err()); err != nil || !yield(r, bad) {
				break
			}
		}
		if err != nil {
			yield(store.Record{}, err)
		}
	}
}
