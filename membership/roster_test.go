package membership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// truth is a group by random histories: what stands in the store, and what its
// two watches tell of it.
type truth struct {
	r       *rand.Rand
	names   names
	counter lease.Token
	records map[string]lease.Record
	streams [2][]store.Event // of members, of leavings: not yet heard
}

func (w *truth) put(name string, o lease.Owner, meta map[string]string) lease.Token {
	w.counter++
	rec := lease.Record{Name: name, Owner: o, Token: w.counter, Metadata: meta}
	w.records[name] = rec
	w.tell(store.Event{Kind: store.EventPut, Record: rec, Revision: rec.Token})
	return rec.Token
}

func (w *truth) remove(name string) {
	if rec, ok := w.records[name]; ok {
		delete(w.records, name)
		w.counter++
		w.tell(store.Event{Kind: store.EventDelete, Record: lease.Record{Name: name}, Revision: rec.Token})
	}
}

func (w *truth) tell(ev store.Event) {
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
		take := []func(store.Event) error{roster.member, roster.notice}[i]
		require.NoError(t, take(ev))
		look()
		if ev.Kind == store.EventPut && w.r.IntN(4) == 0 {
			require.NoError(t, take(ev), "told twice")
			before := roster.list()
			old := ev
			old.Record.Token, old.Record.Metadata = ev.Record.Token-1, map[string]string{keyFormat: "old"}
			require.NoError(t, take(old), "a put of the past")
			old.Kind, old.Revision = store.EventDelete, ev.Revision-1
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

func TestStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := owner("a"), owner("b")
		s := NewStatic(a)
		var told []LeaderChanged
		stop := s.Follow(func(c LeaderChanged) { told = append(told, c) })
		for _, l := range []lease.Owner{a, a, b, {}} {
			synctest.Wait()
			s.Set(l)
		}
		synctest.Wait()
		require.Equal(t, []LeaderChanged{
			{},
			{Leader: a, IsSelf: true},
			{Leader: b, Previous: a},
			{Previous: b},
		}, told)
		stop()
		s.Set(a)
		synctest.Wait()
		require.Len(t, told, 4)
	})
}
