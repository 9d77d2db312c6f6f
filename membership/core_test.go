package membership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/lease"
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
		put := lease.Event{Kind: lease.EventPut, Revision: token, Record: lease.Record{Name: "leader/g", Owner: o.who, Token: token}}
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
			gone := lease.Event{Kind: lease.EventDelete, Revision: token, Record: lease.Record{Name: "leader/g"}}
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
		b.event(lease.Event{Kind: lease.EventPut, Revision: 99, Record: lease.Record{Name: "leader/gg", Token: 99, Owner: owner("x")}})
		b.event(lease.Event{Kind: lease.EventBad, Record: lease.Record{Name: "leader/g"}})
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

// Before the record is known nothing is told, not even that nobody leads; whatever
// is heard of other groups.
func TestElectionTellsNothingBeforeItIsKnown(t *testing.T) {
	m, err := newInstruments(noop.NewMeterProvider(), "a", "g")
	require.NoError(t, err)
	e := &Election{g: &Group{metrics: m}, ballot: ballot{name: "leader/g", self: owner("a")}}
	put := func(name, who string, token lease.Token) {
		e.hear(lease.Event{Kind: lease.EventPut, Revision: token, Record: lease.Record{Name: name, Owner: owner(who), Token: token}})
	}
	put("leader/gg", "x", 1)
	require.Zero(t, e.feed.seq)
	put("leader/g", "b", 2)
	require.Zero(t, e.feed.seq, "the snapshot is not complete")
	e.hear(lease.Event{Kind: lease.EventSynced})
	put("leader/ggg", "x", 3)
	require.EqualValues(t, 1, e.feed.seq)
	require.Equal(t, owner("b"), e.feed.state)
}

// truth is a group by random histories: what stands in the store, and what its
// two watches tell of it.
type truth struct {
	r       *rand.Rand
	names   names
	counter lease.Token
	records map[string]lease.Record
	streams [2][]lease.Event // of members, of leavings: not yet heard
}

func (w *truth) put(name string, o lease.Owner, meta map[string]string) lease.Token {
	w.counter++
	rec := lease.Record{Name: name, Owner: o, Token: w.counter, Metadata: meta}
	w.records[name] = rec
	w.tell(lease.Event{Kind: lease.EventPut, Record: rec, Revision: rec.Token})
	return rec.Token
}

func (w *truth) remove(name string) {
	if rec, ok := w.records[name]; ok {
		delete(w.records, name)
		w.counter++
		w.tell(lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: name}, Revision: rec.Token})
	}
}

func (w *truth) tell(ev lease.Event) {
	i := 0
	if _, ok := w.names.leavingKey(ev.Record.Name); ok {
		i = 1
	}
	w.streams[i] = append(w.streams[i], ev)
}

// want is what a node that has heard everything should list.
func (w *truth) want(self lease.Owner, own lease.Token, leaving bool) map[string]string {
	type found struct {
		token lease.Token
		text  string
	}
	best := map[string]found{}
	add := func(o lease.Owner, token lease.Token, leaving bool) {
		if token > best[o.ID].token {
			best[o.ID] = found{token, fmt.Sprint(o.Incarnation, token, leaving)}
		}
	}
	for name, rec := range w.records {
		if _, ok := w.names.memberKey(name); ok && rec.Owner != self {
			_, leavingName, _ := w.names.own(rec.Owner)
			add(rec.Owner, rec.Token, w.records[leavingName].Metadata[keyMember] == fmt.Sprint(uint64(rec.Token)))
		}
	}
	if own != 0 {
		add(self, own, leaving)
	}
	texts := map[string]string{}
	for id, f := range best {
		texts[id] = f.text
	}
	return texts
}

// Random groups, heard through two watches that lag behind each other and repeat
// themselves: what is listed always fits, and in the end it is the truth.
func TestRosterByProperty(t *testing.T) {
	base := rand.Uint64()
	for i := range 2000 {
		seed := base + uint64(i)
		r := rand.New(rand.NewPCG(seed, 1))
		n, err := namesOf("g/1")
		require.NoError(t, err)
		w := &truth{r: r, names: n, records: map[string]lease.Record{}}
		self := lease.Owner{ID: "n0", Incarnation: "self"}
		roster := newRoster(n, Member{ID: self.ID, Incarnation: self.Incarnation, Capacity: 1})
		require.Equal(t, self, roster.self)
		var listed []Member
		ever := map[membershipKey]bool{}
		look := func() {
			now := roster.list()
			checkList(t, seed, &roster, listed, now, ever)
			listed = now
		}
		var owners []lease.Owner
		for range 60 {
			switch r.IntN(8) {
			case 0, 1: // somebody joins: a new life of one of four IDs
				o := lease.Owner{ID: fmt.Sprint("n", r.IntN(4)), Incarnation: fmt.Sprint("i", len(owners))}
				owners = append(owners, o)
				w.join(o)
			case 2: // joins again, after a loss that went by unseen or not
				if len(owners) > 0 {
					w.join(owners[r.IntN(len(owners))])
				}
			case 3: // announces
				if len(owners) > 0 {
					w.announce(owners[r.IntN(len(owners))])
				}
			case 4: // leaves, or dies
				if len(owners) > 0 {
					member, leaving, _ := n.own(owners[r.IntN(len(owners))])
					w.remove(member)
					w.remove(leaving)
				}
			case 5: // the own term
				if roster.own.Token != 0 {
					roster.own.Token, roster.leaving = 0, false
				} else {
					w.counter++
					roster.own.Token = w.counter
				}
				look()
			case 6:
				roster.leaving = roster.own.Token != 0
				look()
			default:
				w.hear(t, &roster, r.IntN(8), look)
			}
		}
		w.hear(t, &roster, len(w.streams[0])+len(w.streams[1]), look)
		got := map[string]string{}
		for _, m := range listed {
			got[m.ID] = fmt.Sprint(m.Incarnation, m.Token, m.Leaving)
		}
		require.Equal(t, w.want(self, roster.own.Token, roster.leaving), got, "seed %d", seed)
		require.LessOrEqual(t, len(roster.members)+len(roster.notices), len(w.records), "seed %d: nothing is kept for ever", seed)
	}
}

func (w *truth) join(o lease.Owner) {
	name, _, _ := w.names.own(o)
	w.put(name, o, memberMetadata(Member{Capacity: 1}))
}

func (w *truth) announce(o lease.Owner) {
	member, leaving, _ := w.names.own(o)
	if rec, ok := w.records[member]; ok {
		w.put(leaving, o, noticeMetadata(rec.Token))
	}
}

// hear passes some of the events on, each stream in its order; now and then an
// event of the past once more.
func (w *truth) hear(t *testing.T, roster *roster, count int, look func()) {
	for range count {
		i := w.r.IntN(2)
		if len(w.streams[i]) == 0 {
			i = 1 - i
		}
		if len(w.streams[i]) == 0 {
			return
		}
		ev := w.streams[i][0]
		w.streams[i] = w.streams[i][1:]
		take := []func(lease.Event) error{roster.member, roster.notice}[i]
		require.NoError(t, take(ev))
		look()
		if ev.Kind == lease.EventPut && w.r.IntN(4) == 0 {
			require.NoError(t, take(ev), "told twice")
			before := roster.list()
			old := ev
			old.Record.Token, old.Record.Metadata = ev.Record.Token-1, map[string]string{keyFormat: "old"}
			require.NoError(t, take(old), "a put of the past")
			old.Kind, old.Revision = lease.EventDelete, ev.Revision-1
			require.NoError(t, take(old), "a deletion of the past")
			require.Equal(t, before, roster.list())
			look()
		}
	}
}

// checkList: what is listed now fits what was before.
func checkList(t *testing.T, seed uint64, r *roster, before, now []Member, ever map[membershipKey]bool) {
	require.True(t, slices.IsSortedFunc(now, func(a, b Member) int { return strings.Compare(a.ID, b.ID) }), "seed %d", seed)
	for i, m := range now {
		require.False(t, i > 0 && now[i-1].ID == m.ID, "seed %d: %s is listed twice", seed, m.ID)
		require.Equal(t, m.Incarnation == r.self.Incarnation, m.IsSelf, "seed %d", seed)
		if m.IsSelf {
			require.Equal(t, r.own.Token, m.Token, "seed %d: itself only under the own term", seed)
		} else {
			require.False(t, ever[m.key()] && !m.Leaving, "seed %d: %v takes back that it leaves", seed, m)
			ever[m.key()] = m.Leaving
		}
	}
	joined, left, leaving := diff(before, now)
	apply := map[membershipKey]bool{}
	for _, m := range before {
		apply[m.key()] = m.Leaving
	}
	for _, m := range left {
		require.Contains(t, apply, m.key())
		delete(apply, m.key())
	}
	for _, m := range joined {
		require.NotContains(t, apply, m.key())
		apply[m.key()] = false
	}
	for _, m := range leaving {
		require.Contains(t, apply, m.key())
		require.False(t, apply[m.key()])
		apply[m.key()] = true
	}
	want := map[membershipKey]bool{}
	for _, m := range now {
		want[m.key()] = m.Leaving
	}
	for k := range maps.Keys(apply) { // of itself, leaving may be taken back with a new term only
		if k.incarnation == r.self.Incarnation && !want[k] {
			apply[k] = false
		}
	}
	require.Equal(t, want, apply, "seed %d: the differences lead from one list to the next", seed)
}

// What can't be read is counted, not listed, and keeps nobody from being read
// later.
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
	put := func(name string, token lease.Token, meta map[string]string) lease.Event {
		return lease.Event{Kind: lease.EventPut, Revision: token, Record: lease.Record{Name: name, Owner: o, Token: token, Metadata: meta}}
	}
	for what, ev := range map[string]lease.Event{
		"no metadata":     put(name, 2, nil),
		"newer format":    put(name, 2, with(keyFormat, "2")),
		"roles":           put(name, 2, with(keyRoles, "x")),
		"empty role":      put(name, 2, with(keyRoles, `[""]`)),
		"no capacity":     put(name, 2, with(keyCapacity, "")),
		"zero capacity":   put(name, 2, with(keyCapacity, "0")),
		"huge capacity":   put(name, 2, with(keyCapacity, "99999999999999999999")),
		"another's name":  put(name+"x", 2, good),
		"more segments":   put(name+"/x", 2, good),
		"fewer segments":  put(n.members+"b", 2, good),
		"too long a name": put(n.members+strings.Repeat("b", 500), 2, good),
	} {
		r := newRoster(n, Member{ID: "a", Incarnation: "a-1"})
		require.NoError(t, r.member(put(name, 1, with("later", "key"))), "a key that is not known is no fault")
		require.Equal(t, []Member{{ID: "b", Incarnation: "b-1", Address: "b:1", Roles: []string{"x"}, Capacity: 3, Token: 1}}, r.list())
		require.ErrorIs(t, r.member(ev), lease.ErrBadRecord, what)
		require.Len(t, r.unreadable, 1, what)
		if ev.Record.Name == name {
			require.Empty(t, r.list(), what)
			require.NoError(t, r.member(put(name, 3, good)))
			require.Len(t, r.list(), 1)
		} else {
			require.NoError(t, r.member(lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: ev.Record.Name}, Revision: 2}))
		}
		require.Empty(t, r.unreadable, what)
	}
	for what, meta := range map[string]map[string]string{
		"no metadata": nil, "newer format": {keyFormat: "2", keyMember: "1"}, "no member": {keyFormat: format},
		"zero": {keyFormat: format, keyMember: "0"}, "negative": {keyFormat: format, keyMember: "-1"},
	} {
		r := newRoster(n, Member{ID: "a", Incarnation: "a-1"})
		require.ErrorIs(t, r.notice(put(leavingName, 2, meta)), lease.ErrBadRecord, what)
		require.Len(t, r.unreadable, 1, what)
		require.NoError(t, r.notice(lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: leavingName}, Revision: 2}))
		require.Empty(t, r.unreadable, what)
	}
}

// Whatever stands in a record, reading it does not panic, and what was read is in
// its bounds.
func FuzzReadMember(f *testing.F) {
	n, err := namesOf("g")
	require.NoError(f, err)
	f.Add("b", "b-1", "1", `["x","y"]`, "7")
	f.Add("a/%2F", "ä", "1", `null`, "1048576")
	f.Add("", "", "", `{"a":1}`, "-1")
	f.Fuzz(func(t *testing.T, id, incarnation, format, roles, capacity string) {
		o := lease.Owner{ID: id, Incarnation: incarnation}
		name, _, err := n.own(o)
		if err != nil {
			name = n.members + id
		}
		m, err := n.readMember(lease.Record{Name: name, Owner: o, Token: 5,
			Metadata: map[string]string{keyFormat: format, keyRoles: roles, keyCapacity: capacity}})
		if err != nil {
			require.ErrorIs(t, err, lease.ErrBadRecord)
			return
		}
		require.LessOrEqual(t, len(m.Roles), MaxRoles)
		require.True(t, m.Capacity >= 1 && m.Capacity <= MaxCapacity)
		again, err := n.readMember(lease.Record{Name: name, Owner: o, Token: 5, Metadata: memberMetadata(m)})
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
