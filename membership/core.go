package membership

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file is what a node makes of what it hears: records of others, and the
// beginning and end of its own terms. Nothing in it waits, or reads a clock.

// roster reduces events of the member and leaving records to a list of members.
// Of this node's own membership only its own term counts, never a record.
type roster struct {
	names   names
	self    lease.Owner
	own     Member // its Token is 0 while this node is no member
	leaving bool   // this node is

	members map[string]Member // of others, by the end of the record's name
	notices map[string]notice // by name
	synced  struct{ members, notices bool }
}

// notice is a leaving record.
type notice struct {
	token lease.Token
	of    lease.Token // the membership that ends
}

func newRoster(n names, self Member) roster {
	return roster{names: n, self: self.Owner(), own: self, members: map[string]Member{}, notices: map[string]notice{}}
}

// outdate drops what an event says is over of what records told, and reports whether the event is of a
// later record. of has what records told by a key of their names, and token the token of the one of key.
func outdate[V any](of map[string]V, key string, token lease.Token, ev store.Event) (later bool) {
	switch ev.Kind {
	case store.EventReset:
		clear(of)
	case store.EventDelete:
		if ev.Revision >= token {
			delete(of, key)
		}
	case store.EventPut:
		return ev.Record.Token > token
	}
	return false
}

// member takes up an event of a member record, this node's own aside. An error says that it can't be
// read.
func (r *roster) member(ev store.Event) error {
	key, ours := r.names.memberKey(ev.Record.Name)
	r.synced.members = r.synced.members || ev.Kind == store.EventSynced
	if !outdate(r.members, key, r.members[key].Token, ev) || !ours || ev.Record.Owner.Incarnation == r.self.Incarnation {
		return nil
	}
	delete(r.members, key)
	m, err := r.names.readMember(ev.Record)
	if err != nil {
		return err
	}
	m.Leaving = r.notices[key].of == m.Token
	r.members[key] = m
	return nil
}

// notice takes up an event of a leaving record. An error says that it can't be
// read. A member stays one that leaves when the record goes: the member's own goes
// before, but they arrive by different watches.
func (r *roster) notice(ev store.Event) error {
	key, ours := r.names.leavingKey(ev.Record.Name)
	r.synced.notices = r.synced.notices || ev.Kind == store.EventSynced
	if !outdate(r.notices, key, r.notices[key].token, ev) || !ours || ev.Record.Owner.Incarnation == r.self.Incarnation {
		return nil
	}
	of, err := r.names.readNotice(ev.Record)
	if err != nil {
		return err
	}
	r.notices[key] = notice{token: ev.Record.Token, of: of}
	if m := r.members[key]; m.Token == of {
		m.Leaving = true
		r.members[key] = m
	}
	return nil
}

// complete reports whether everything that stood at the beginning was told.
func (r *roster) complete() bool { return r.synced.members && r.synced.notices }

// list returns the members by ID. Of two lives of one ID the newer token counts.
func (r *roster) list() []Member {
	latest := make(map[string]Member, len(r.members)+1)
	add := func(m Member) {
		old, ok := latest[m.ID]
		if !ok || m.Token > old.Token || m.Token == old.Token && m.Incarnation > old.Incarnation {
			latest[m.ID] = m
		}
	}
	for _, m := range r.members {
		add(m)
	}
	if r.own.Token != 0 {
		m := r.own
		m.Leaving, m.IsSelf = r.leaving, true
		add(m)
	}
	return slices.SortedFunc(maps.Values(latest), func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
}

// ballot reduces the events of the leader's record, and this node's own terms of
// leadership, to the leader.
type ballot struct {
	name string
	self lease.Owner
	own  lease.Token // of the own term that is alive; 0: none
	past lease.Token // the highest that this node ever had

	holder lease.Owner // by the record
	token  lease.Token // of the record; 0: none stands
	seen   lease.Token // events with lower tokens are of the past
}

// won: this node's term under t has begun.
func (b *ballot) won(t lease.Token) { b.own, b.past = t, max(b.past, t) }

// ended: this node's term under t has ended.
func (b *ballot) ended(t lease.Token) {
	if b.own == t {
		b.own = 0
	}
}

// event takes up an event of the leader's record.
func (b *ballot) event(ev store.Event) {
	if ev.Kind == store.EventReset {
		b.holder, b.token, b.seen, b.past = lease.Owner{}, 0, 0, b.own
		return
	}
	if ev.Record.Name != b.name {
		return // another, whose name begins alike
	}
	switch {
	case ev.Kind == store.EventPut && ev.Record.Token >= b.seen:
		b.holder, b.token, b.seen = ev.Record.Owner, ev.Record.Token, ev.Record.Token
	case ev.Kind == store.EventDelete && ev.Revision >= b.seen:
		b.holder, b.token, b.seen = lease.Owner{}, 0, ev.Revision
	}
}

// leader returns the leader that this node knows of; zero if there is none. It is this
// node while its own term is alive and nothing later was heard of; when it is not
// alive, no record can make it so.
func (b *ballot) leader() lease.Owner {
	switch {
	case b.own != 0 && b.own >= b.seen:
		return b.self
	case b.token == 0, b.token < b.past, b.holder.Incarnation == b.self.Incarnation:
		return lease.Owner{}
	}
	return b.holder
}

// predecessor returns an earlier life of this ID whose record stands, and that
// does not leave: it may live. One that was at this node's address does not.
func (r *roster) predecessor() (m Member, ok bool) {
	for _, m := range r.members {
		there := m.Address == "" || m.Address != r.own.Address
		if m.ID == r.own.ID && m.Token < r.own.Token && !m.Leaving && there {
			return m, true
		}
	}
	return Member{}, false
}
