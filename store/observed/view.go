package observed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/store"
)

// Change is what became of one object.
type Change struct {
	Object       // as it was written; of one that was deleted the Key, and the Version of the deletion
	Deleted bool // there is none any more
	Synced  bool // all objects that stood were told; the rest is zero
}

// View makes events of a watch out of changes of the objects. Make one with Store.View. It is not safe
// for concurrent use.
type View struct {
	s        *Store
	of       store.Scope
	sessions map[store.SessionID]looked
	records  map[string]standing        // under the names that are watched
	told     map[string]store.EventKind // EventPut or EventBad, of the names that are not free
	synced   bool
	events   []store.Event
}

// View returns the View of one watch, for objects that are Numbered and tell of changes. It is given,
// by Take, every object as it stands, a Change that is Synced, and then every change since, with no gap,
// over all keys in the order of their numbers.
func (s *Store) View(of store.Scope) *View {
	return &View{s: s, of: of, sessions: map[store.SessionID]looked{}, records: map[string]standing{}, told: map[string]store.EventKind{}}
}

// Take takes up a change, and returns the events that it makes. The Store saw the object at the time of
// the call. After an error the watch is over.
func (v *View) Take(c Change) ([]store.Event, error) {
	if v.s == nil || v.s.number == nil {
		return nil, fmt.Errorf("observed.View: %w: must come from Store.View, of objects that are Numbered", store.ErrInvalid)
	}
	v.events = nil
	if c.Synced {
		v.synced = true
		for name := range v.records {
			v.tell(name, 0, true)
		}
		return append(v.events, store.Event{Kind: store.EventSynced}), nil
	}
	number, err := v.s.number(c.Version)
	if err != nil {
		return nil, v.s.unknown("watch", c.Key, err)
	}
	if id, ok := strings.CutPrefix(c.Key, sessionPrefix); ok {
		if id, err := strconv.ParseInt(id, 10, 64); err == nil {
			v.session(store.SessionID(id), c, number)
		}
	} else if name, ok := unescape(strings.TrimPrefix(c.Key, recordPrefix)); ok && strings.HasPrefix(name, v.of.Prefix) {
		if v.records[name] = v.s.parse(name, c.Object, true); c.Deleted {
			delete(v.records, name)
		}
		v.tell(name, number, true)
	}
	return v.events, nil
}

// session takes up a change of a session, which may end what stands under it.
func (v *View) session(id store.SessionID, c Change, number store.Token) {
	before, now := v.sessions[id], looked{}
	if !c.Deleted {
		var o session
		if o, now.err = decodeSession(c.Value); now.err == nil {
			now.sight, now.there = v.s.note(id, o, c.Version), true
		}
	}
	if v.sessions[id] = now; c.Deleted {
		delete(v.sessions, id)
	}
	if before.there && now.there && before.Life == now.Life { // it was renewed
		return
	}
	for name, n := range v.records {
		if n.Session == id {
			v.tell(name, number, false)
		}
	}
}

// tell makes the event of what stands under a name, if that was written, or is of another kind than what
// was told.
func (v *View) tell(name string, number store.Token, written bool) {
	n, there := v.records[name]
	of := v.sessions[n.Session]
	ev := store.Event{Kind: store.EventDelete, Record: store.Record{Name: name}, Revision: number}
	switch {
	case there && (n.err != nil || of.err != nil):
		ev.Kind = store.EventBad
	case there && of.there && of.Life == n.Life:
		n.held, n.of, n.left = true, of.sight, of.left(v.s.clock.Now().Mono)
		ev = store.Event{Kind: store.EventPut, Record: n.public(), Revision: n.token}
	case v.told[name] == 0: // it is free, as before
		return
	}
	if !v.synced || !written && ev.Kind == v.told[name] {
		return
	}
	if v.told[name] = ev.Kind; ev.Kind == store.EventDelete {
		delete(v.told, name)
	}
	if ev.Kind == store.EventDelete || !v.of.Deletions {
		v.events = append(v.events, ev)
	}
}

// End ends the sessions that the View shows and that are dead. What fails is to be tried again. An error
// is store.ErrDenied: the watch should end with it, so that the Keeper tells why names stay taken.
func (v *View) End(ctx context.Context) (denied error) {
	for id, g := range v.sessions {
		if g.there && g.left(v.s.clock.Now().Mono) <= 0 {
			if _, err := v.s.look(ctx, "watch", id); errors.Is(err, store.ErrDenied) {
				denied = err
			}
		}
	}
	return denied
}
