package membership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func owner(id string) lease.Owner {
	return lease.Owner{ID: id, Incarnation: id + "-1", Address: id + ":1"}
}

// A step is one thing that one node hears, in one of three streams that come in
// their own order each: the watch, and the beginning and end of own terms.
type step struct {
	text  string
	do    func(b *ballot)
	token lease.Token // that it is about
	won   bool
	ended bool
}

// ownership is one tenure of the leader's lease, by the truth.
type ownership struct {
	who  lease.Owner
	how  string // it ends: "deleted", "replaced" by the next, or "" for not yet
	list bool   // a store that is listed shows it, or it goes by unseen
}

// Every history of up to three ownerships by three nodes, in every order in which
// one of them can hear of it, fits what a follower may rely on.
func TestBallotExhaustively(t *testing.T) {
	self, others := owner("a"), []lease.Owner{owner("b"), owner("c")}
	runs := 0
	var build func(h []ownership)
	build = func(h []ownership) {
		if len(h) > 0 {
			record, own := streams(self, h)
			interleave(record, own, nil, func(order []step) {
				runs++
				checkBallot(t, self, h, order)
			})
		}
		if len(h) == 3 || len(h) > 0 && h[len(h)-1].how == "" {
			return
		}
		for _, who := range append([]lease.Owner{self}, others...) {
			for _, how := range []string{"", "deleted", "replaced"} {
				for _, seen := range []bool{true, false} {
					build(append(slices.Clone(h), ownership{who, how, seen}))
				}
			}
		}
	}
	build(nil)
	require.Greater(t, runs, 10_000)
}

// streams are what the node hears of a history, by its watch and of its own.
func streams(self lease.Owner, h []ownership) (record, own []step) {
	standing := lease.Token(0)
	for i, o := range h {
		token := lease.Token(10 * (i + 1))
		put := store.Event{Kind: store.EventPut, Revision: token, Record: lease.Record{Name: "leader/g", Owner: o.who, Token: token}}
		if o.list {
			record = append(record, step{text: fmt.Sprint("put ", token), do: func(b *ballot) { b.event(put) }, token: token})
			standing = token
		}
		if o.who == self {
			own = append(own,
				step{text: fmt.Sprint("won ", token), do: func(b *ballot) { b.won(token) }, token: token, won: true})
			if o.how != "" {
				own = append(own,
					step{text: fmt.Sprint("ended ", token), do: func(b *ballot) { b.ended(token) }, token: token, ended: true})
			}
		}
		if o.how == "deleted" && standing != 0 {
			gone := store.Event{Kind: store.EventDelete, Revision: token, Record: lease.Record{Name: "leader/g"}}
			record = append(record, step{text: fmt.Sprint("delete ", token), do: func(b *ballot) { b.event(gone) }, token: token})
			standing = 0
		}
	}
	return record, own
}

// interleave plays every merge of two streams.
func interleave(a, b, sofar []step, f func([]step)) {
	if len(a) == 0 && len(b) == 0 {
		f(sofar)
		return
	}
	if len(a) > 0 {
		interleave(a[1:], b, append(slices.Clone(sofar), a[0]), f)
	}
	if len(b) > 0 {
		interleave(a, b[1:], append(slices.Clone(sofar), b[0]), f)
	}
}

func checkBallot(t *testing.T, self lease.Owner, h []ownership, order []step) {
	b := ballot{name: "leader/g", self: self}
	var text []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%+v, heard as %s: %s", h, strings.Join(text, ", "), fmt.Sprintf(format, args...))
	}
	var last lease.Owner
	told, alive := lease.Token(0), lease.Token(0)
	look := func() {
		now := b.leader()
		if (now == self) != (alive != 0 && alive >= b.seen) {
			fail("says %q while the own term is %d", now.ID, alive)
		}
		if now != last && now != (lease.Owner{}) {
			of := b.token
			if now == self {
				of = b.own
			}
			if of <= told {
				fail("%q is told under %d after %d", now.ID, of, told)
			}
			told = of
		}
		last = now
	}
	for i, s := range order {
		s.do(&b)
		text = append(text, s.text)
		switch {
		case s.won:
			alive = s.token
		case s.ended:
			alive = 0
		}
		look()
		// Events that are repeated, as by a watch that begins anew with what is
		// old, change nothing.
		was := b
		for _, old := range order[:i+1] {
			if !old.won && !old.ended && old.token < b.seen {
				old.do(&b)
			}
		}
		b.event(store.Event{Kind: store.EventPut, Revision: 99, Record: lease.Record{Name: "leader/gg", Token: 99, Owner: owner("x")}})
		b.event(store.Event{Kind: store.EventBad, Record: lease.Record{Name: "leader/g"}})
		if b != was {
			fail("an event of the past counts")
		}
	}
	// In the end everybody knows who leads.
	end := h[len(h)-1]
	want := lease.Owner{}
	if end.how == "" && (end.list || end.who == self) {
		want = end.who
	}
	if seen := end.how == "" && end.list || end.how == "deleted"; (seen || want == self) && last != want {
		fail("says %q in the end, not %q", last.ID, want.ID)
	}
}

// Nothing is told before the record is known, whatever is heard of other groups.
func TestElectionTellsNothingBeforeItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newInstruments(noop.NewMeterProvider(), "a", "g")
		require.NoError(t, err)
		e := &Election{of: &membership{base: base{metrics: m}}, ballot: ballot{name: "leader/g", self: owner("a")}}
		var told []lease.Owner
		e.feed.Follow(func(_, leader lease.Owner, _ int) { told = append(told, leader) })
		put := func(name, who string, token lease.Token) {
			e.hear(store.Event{Kind: store.EventPut, Revision: token, Record: lease.Record{Name: name, Owner: owner(who), Token: token}})
		}
		put("leader/gg", "x", 1)
		put("leader/g", "b", 2)
		synctest.Wait()
		require.Empty(t, told, "the snapshot is not complete")
		e.hear(store.Event{Kind: store.EventSynced})
		put("leader/ggg", "x", 3)
		synctest.Wait()
		require.Equal(t, []lease.Owner{owner("b")}, told)
	})
}

// A record that can't be read is not listed. One that can is, later.
func TestUnreadableRecords(t *testing.T) {
	n, err := namesOf("g")
	require.NoError(t, err)
	o := owner("b")
	name, leavingName, err := n.own(o)
	require.NoError(t, err)
	good := memberMetadata(Member{Roles: []string{"x"}, Capacity: 3})
	with := func(key, value string) map[string]string {
		m := maps.Clone(good)
		m[key] = value
		return m
	}
	put := func(name string, token lease.Token, meta map[string]string) store.Event {
		return store.Event{Kind: store.EventPut, Revision: token, Record: lease.Record{Name: name, Owner: o, Token: token, Metadata: meta}}
	}
	for what, ev := range map[string]store.Event{
		"no metadata":     put(name, 2, nil),
		"newer format":    put(name, 2, with(keyFormat, "2")),
		"roles":           put(name, 2, with(keyRoles, "x")),
		"empty role":      put(name, 2, with(keyRoles, `[""]`)),
		"no capacity":     put(name, 2, with(keyCapacity, "")),
		"zero capacity":   put(name, 2, with(keyCapacity, "0")),
		"huge capacity":   put(name, 2, with(keyCapacity, "99999999999999999999")),
		"labels":          put(name, 2, with(keyLabels, `["x"]`)),
		"empty label":     put(name, 2, with(keyLabels, `{"x":""}`)),
		"another's name":  put(name+"x", 2, good),
		"more segments":   put(name+"/x", 2, good),
		"fewer segments":  put(n.members+"b", 2, good),
		"too long a name": put(n.members+strings.Repeat("b", 500), 2, good),
	} {
		r := newRoster(n, Member{ID: "a", Incarnation: "a-1"})
		require.NoError(t, r.member(put(name, 1, with("later", "key"))), "a key that is not known is no fault")
		require.Equal(t, []Member{{ID: "b", Incarnation: "b-1", Address: "b:1", Roles: []string{"x"}, Capacity: 3, Token: 1}}, r.list())
		require.ErrorIs(t, r.member(ev), lease.ErrBadRecord, what)
		if ev.Record.Name == name {
			require.Empty(t, r.list(), what)
			require.NoError(t, r.member(put(name, 3, good)))
		}
		require.Len(t, r.list(), 1, what)
	}
	for what, meta := range map[string]map[string]string{
		"no metadata": nil, "newer format": {keyFormat: "2", keyMember: "1"}, "no member": {keyFormat: format},
		"zero": {keyFormat: format, keyMember: "0"}, "negative": {keyFormat: format, keyMember: "-1"},
	} {
		r := newRoster(n, Member{ID: "a", Incarnation: "a-1"})
		require.ErrorIs(t, r.notice(put(leavingName, 2, meta)), lease.ErrBadRecord, what)
	}
}

// Whatever stands in a record, reading it does not panic, and what was read is in
// its bounds.
func FuzzReadMember(f *testing.F) {
	n, err := namesOf("g")
	require.NoError(f, err)
	f.Add("b", "b-1", "1", `["x","y"]`, "7", `{"zone":"a"}`)
	f.Add("a/%2F", "ä", "1", `null`, "1048576", `null`)
	f.Add("", "", "", `{"a":1}`, "-1", `{"x":`)
	f.Fuzz(func(t *testing.T, id, incarnation, format, roles, capacity, labels string) {
		o := lease.Owner{ID: id, Incarnation: incarnation}
		name, _, err := n.own(o)
		if err != nil {
			name = n.members + id
		}
		m, err := n.readMember(lease.Record{Name: name, Owner: o, Token: 5,
			Metadata: map[string]string{keyFormat: format, keyRoles: roles, keyCapacity: capacity, keyLabels: labels}})
		if err != nil {
			require.ErrorIs(t, err, lease.ErrBadRecord)
			return
		}
		require.LessOrEqual(t, len(m.Roles), MaxRoles)
		require.LessOrEqual(t, len(m.Labels), MaxLabels)
		require.True(t, m.Capacity >= 1 && m.Capacity <= MaxCapacity)
		again, err := n.readMember(lease.Record{Name: name, Owner: o, Token: 5, Metadata: memberMetadata(m)})
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
