package membership

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Whatever events of whatever records come, in whatever order, a roster does not
// panic, lists every ID once and in order, itself only as a member, and forgets what
// is deleted.
func FuzzRoster(f *testing.F) {
	f.Add([]byte{0, 1, 5, 1, 0, 2, 6, 0, 1, 3, 4, 0, 0, 0, 9, 0}, "b", "b-1", `["x"]`, "1", "7")
	f.Add([]byte{2, 0, 0, 0, 3, 0, 0, 0, 0, 4, 255, 7}, "a", "a-1", "null", "1048576", "0")
	f.Fuzz(func(t *testing.T, script []byte, id, incarnation, roles, capacity, of string) {
		n, err := namesOf("g")
		require.NoError(t, err)
		self := Member{ID: "a", Incarnation: "a-1"}
		r := newRoster(n, self)
		owners := []lease.Owner{{ID: id, Incarnation: incarnation}, {ID: "b", Incarnation: "b-1"}, {ID: "b", Incarnation: "b-2"}, self.Owner()}
		for len(script) >= 4 {
			what, who, token, meta := script[0], owners[int(script[1])%len(owners)], lease.Token(script[2]), script[3]
			script = script[4:]
			member, leaving, err := n.own(who)
			if err != nil {
				member, leaving = n.members+id, n.leaving+id
			}
			m := map[string]string{keyFormat: format, keyRoles: roles, keyCapacity: capacity, keyMember: of}
			switch meta % 4 {
			case 1:
				m = memberMetadata(Member{Roles: []string{"x"}, Capacity: 1})
			case 2:
				m = noticeMetadata(token)
			case 3:
				m = nil
			}
			ev := store.Event{Kind: store.EventKind(what % 5), Revision: token, Record: lease.Record{Owner: who, Token: token, Metadata: m}}
			if what&0x80 == 0 {
				ev.Record.Name = member
				err = r.member(ev)
			} else {
				ev.Record.Name = leaving
				err = r.notice(ev)
			}
			if err != nil {
				require.ErrorIs(t, err, lease.ErrBadRecord)
			}
		}
		list := r.list()
		require.True(t, slices.IsSortedFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) }))
		for i, m := range list {
			require.True(t, i == 0 || m.ID != list[i-1].ID)
			require.NotEqual(t, self.Incarnation, m.Incarnation, "it is no member")
		}
		for _, o := range owners {
			member, _, err := n.own(o)
			if err != nil {
				continue
			}
			require.NoError(t, r.member(store.Event{Kind: store.EventDelete, Revision: 1 << 62, Record: lease.Record{Name: member}}))
		}
		require.Empty(t, r.list())
	})
}

// Options are refused with the name of the one that is at fault, or a group can be
// joined with them, and shows what they say.
func FuzzOptions(f *testing.F) {
	f.Add("g", "worker", "worker", 1, 10)
	f.Add("", "", "x", 0, 0)
	f.Add("g/h\x00", strings.Repeat("r", MaxRole), "\xff", MaxCapacity, MaxRoles+1)
	f.Fuzz(func(t *testing.T, group, role, other string, capacity, many int) {
		synctest.Test(t, func(t *testing.T) {
			k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
			require.NoError(t, err)
			defer func() { require.NoError(t, k.Close(context.Background())) }()
			roles := []string{role, other}
			for i := range many % 100 {
				roles = append(roles, strings.Repeat("m", i+1))
			}
			g, err := Join(t.Context(), k, group, WithRoles(roles...), WithCapacity(capacity))
			if err != nil {
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.Regexp(t, `WithRoles|WithCapacity|segment|name`, err.Error())
				require.Less(t, len(err.Error()), 4*store.MaxName+200)
				return
			}
			self, ok := g.Self()
			require.True(t, ok)
			require.Equal(t, capacity, self.Capacity)
			require.True(t, self.HasRole(role) && self.HasRole(other))
			time.Sleep(time.Minute)
			require.Len(t, g.Members().Members, 1)
			require.NoError(t, g.Leave(t.Context()))
		})
	})
}
