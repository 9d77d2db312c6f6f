package membership_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A member is listed everywhere, with what it said of itself; Join returns with
// the snapshot complete.
func TestJoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join(membership.WithRoles("worker", "front", "worker"), membership.WithCapacity(7))
		require.Equal(t, "a*", a.sees())
		b := w.node("b").join()
		require.Len(t, b.group.Members().Members, 2, "complete when Join returns")
		require.Equal(t, "a b*", b.sees())
		require.Equal(t, "a* b", a.sees())

		m, ok := b.group.Members().Find("a")
		require.True(t, ok)
		self, ok := a.group.Self()
		require.True(t, ok)
		require.True(t, self.IsSelf)
		self.IsSelf = false
		require.Equal(t, self, m, "both see the same")
		require.Equal(t, a.keeper.Owner(), m.Owner())
		require.Equal(t, []string{"front", "worker"}, m.Roles)
		require.True(t, m.HasRole("worker") && !m.HasRole("x"))
		require.True(t, a.group.HasRole("worker") && !a.group.HasRole("x"))
		require.Equal(t, 7, m.Capacity)
		term, ok := a.group.Term()
		require.True(t, ok)
		require.Equal(t, term.Token(), m.Token)

		other, ok := b.group.Members().Find("b")
		require.True(t, ok)
		require.Equal(t, 1, other.Capacity)
		_, ok = b.group.Members().Find("c")
		require.False(t, ok)
		require.Equal(t, "g", a.group.Name())
		require.Equal(t, a.keeper, a.group.Keeper())
	})
}

// What the user says in the group's records stays there, and is not taken for what the
// group says.
func TestMetadataOfTheUsersStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		users := map[string]string{"zone": "eu", "format": "9", "roles": "x", "capacity": "-1"}
		a := w.node("a").join(membership.WithRoles("worker"), membership.WithLeaseOptions(lease.WithMetadata(users)))
		b := w.node("b").join()
		m, ok := b.group.Members().Find("a")
		require.True(t, ok)
		require.Equal(t, []string{"worker"}, m.Roles)
		require.Equal(t, 1, m.Capacity)
		recs := must(w.store.Get(t.Context(), "member/g/a/"+a.keeper.Owner().Incarnation))(t)
		require.Equal(t, "eu", recs[0].Metadata["zone"])
	})
}

// Followers are told everybody at first, then the differences; versions grow.
func TestFollowMembers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join()
		b := w.node("b").join()
		c := w.node("c").join()
		b.announce()
		b.leave()
		c.announce()
		c.leave()

		var story []string
		version := uint64(0)
		for _, ch := range a.members.all() {
			require.Greater(t, ch.Now.Version, version)
			require.Zero(t, ch.Skipped)
			version = ch.Now.Version
			story = append(story, changeText(ch))
		}
		require.Equal(t, []string{"+a", "+b", "+c", "~b", "-b", "~c", "-c"}, story)
		require.Equal(t, a.members.all(), of[membership.MembersChanged](a.stream.all()), "the EventStream is told the same, as values")

		last := b.members.last()
		_, ok := last.Now.Self()
		require.False(t, ok, "who has left is no member")
		require.Len(t, last.Left, 1)
		require.True(t, last.Left[0].IsSelf)
	})
}

func changeText(c membership.MembersChanged) string {
	var s []string
	for _, x := range []struct {
		sign string
		ms   []membership.Member
	}{{"+", c.Joined}, {"-", c.Left}, {"~", c.Leaving}} {
		for _, m := range x.ms {
			s = append(s, x.sign+m.ID)
		}
	}
	return strings.Join(s, " ")
}

// A restarted node is another member at once; the old one is not listed any more,
// though its record stands until its TTL ends.
func TestRestartNeedNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join()
		b := w.node("b").join()
		old, _ := b.group.Self()
		b.crash()
		b = w.node("b")
		began := time.Now()
		b.join()
		require.Equal(t, began, time.Now(), "no wait")
		require.Equal(t, "a* b", a.sees())
		now, _ := a.group.Members().Find("b")
		require.Equal(t, b.keeper.Owner().Incarnation, now.Incarnation)
		require.Greater(t, now.Token, old.Token)
		ch := a.members.last()
		require.Equal(t, "+b -b", changeText(ch))
		require.Equal(t, old.Incarnation, ch.Left[0].Incarnation)

		told := len(a.members.all())
		time.Sleep(2 * ttl)
		require.Equal(t, "a* b", a.sees())
		require.Len(t, a.members.all(), told, "nobody is told when the old record goes")
		require.Len(t, w.standing(), 2)
	})
}

// Of two living nodes under one ID the later counts, for everybody.
func TestOneIDTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		require.True(t, a.leads())
		twin := w.member("a")
		require.Equal(t, "a", a.sees(), "the earlier does not list itself")
		require.Equal(t, "a*", twin.sees())
		_, ok := a.group.Self()
		require.False(t, ok)
		require.False(t, a.leads())
		require.True(t, twin.leads())
		twin.leave()
		require.Equal(t, "a*", a.sees(), "the earlier counts again")
		require.True(t, a.leads())
	})
}

func TestOddNames(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ids := []string{"a/b", "a%2Fb", "a", "ä ö/…", "leaving"}
		for _, group := range []string{"g", "g/x", "g%2Fx", "gg", "日本 語"} {
			var groups []*membership.Group
			for _, id := range ids {
				n := w.node(id)
				g := must(membership.Join(t.Context(), n.keeper, group))(t)
				must(g.Leadership())(t)
				synctest.Wait()
				w.ends = append(w.ends, func() { _ = g.Leave(context.Background()) })
				groups = append(groups, g)
			}
			require.NoError(t, groups[2].AnnounceLeaving(t.Context()))
			synctest.Wait()
			for i, g := range groups {
				s := g.Members()
				require.Equal(t, group, s.Group)
				require.Len(t, s.Members, len(ids), "groups are not mixed up")
				for _, id := range ids {
					m, ok := s.Find(id)
					require.True(t, ok, id)
					require.Equal(t, id == "a", m.Leaving)
				}
				e := must(g.Leadership())(t)
				l, self := e.Leader()
				require.Equal(t, "a/b", l.ID, "the first leads, in each group")
				require.Equal(t, i == 0, self)
			}
		}
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		many := make([]string, membership.MaxRoles+1)
		for i := range many {
			many[i] = strings.Repeat("r", i+1)
		}
		for _, c := range []struct {
			name, group, text string
			keeper            *lease.Keeper
			opt               membership.Option
		}{
			{"no keeper", "g", "keeper: invalid: nil", nil, membership.WithCapacity(1)},
			{"no group", "", "name: invalid: empty", n.keeper, membership.WithCapacity(1)},
			{"long group", strings.Repeat("g", 600), "at most 512", n.keeper, membership.WithCapacity(1)},
			{"long with the id", strings.Repeat("g", 480), "at most 512", n.keeper, membership.WithCapacity(1)},
			{"not UTF-8", "\xff", "not UTF-8", n.keeper, membership.WithCapacity(1)},
			{"nil option", "g", "a nil Option", n.keeper, nil},
			{"capacity", "g", "WithCapacity: invalid: 0, must be at least 1 and at most 1048576", n.keeper, membership.WithCapacity(0)},
			{"big capacity", "g", "WithCapacity", n.keeper, membership.WithCapacity(membership.MaxCapacity + 1)},
			{"empty role", "g", "WithRoles: role", n.keeper, membership.WithRoles("")},
			{"long role", "g", "WithRoles: role", n.keeper, membership.WithRoles(strings.Repeat("r", membership.MaxRole+1))},
			{"odd role", "g", "not UTF-8", n.keeper, membership.WithRoles("\xff")},
			{"many roles", "g", "roles: invalid: 65, at most 64", n.keeper, membership.WithRoles(many...)},
			{"no events", "g", "WithEvents: invalid: nil", n.keeper, membership.WithEvents(hosting.ToEventStream(nil))},
			{"lease option", "g", "lease.WithTTL", n.keeper, membership.WithLeaseOptions(lease.WithTTL(time.Millisecond))},
			{"never renewed", "g", "WithLeaseOptions: lease.WithRenewal: invalid: never", n.keeper,
				membership.WithLeaseOptions(lease.WithRenewal(lease.RenewNever()))},
			{"renewed by hand", "g", "manual, must be", n.keeper, membership.WithLeaseOptions(lease.WithRenewal(lease.RenewByHand()))},
		} {
			_, err := membership.Join(t.Context(), c.keeper, c.group, c.opt)
			require.ErrorIs(t, err, lease.ErrInvalid, c.name)
			require.ErrorContains(t, err, c.text, c.name)
		}
		n.join()
		_, err := membership.Join(t.Context(), n.keeper, "g")
		require.ErrorIs(t, err, lease.ErrNameInUse)
		n.stand()
		again := must(n.group.Leadership())(t)
		require.Same(t, n.election, again)
		n.leave()
		require.NoError(t, n.group.Leave(t.Context()), "twice is no error")
		fresh := w.node("b").join()
		fresh.leave()
		_, err = fresh.group.Leadership()
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

// watchless hides that a store can watch.
type watchless struct{ store.Store }

// bare is a store that can neither watch nor list.
type bare struct{ store.Store }

func (s bare) Limits() store.Limits {
	l := s.Store.Limits()
	l.BySession = false
	return l
}

func (bare) List(context.Context, store.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, lease.ErrUnsupported) }
}

func TestStoreThatCanNotListIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := must(lease.NewKeeper(bare{w.store}, lease.Config{ID: "a", TTL: ttl}))(t)
		_, err := membership.Join(t.Context(), k, "g")
		require.ErrorIs(t, err, lease.ErrUnsupported)
		require.ErrorContains(t, err, "members can't be found")
		require.NoError(t, k.Close(t.Context()))
		require.Empty(t, w.standing())
	})
}

// Without a watch members are found by listing.
func TestStoreThatCanOnlyList(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.nodeOn(watchless{w.store}, "a").join().stand()
		b := w.nodeOn(watchless{w.store}, "b").join().stand()
		until(t, 3*time.Second, "a sees b", func() bool { return a.sees() == "a* b" })
		until(t, 3*time.Second, "b sees a lead", func() bool { return b.story() == "a" })
		a.leave()
		until(t, 15*time.Second, "b leads", b.leads)
		until(t, 3*time.Second, "b sees a gone", func() bool { return b.sees() == "b*" })
	})
}

// Join that does not come to its end leaves nothing behind, whatever it waited for.
func TestJoinGivenUp(t *testing.T) {
	for name, rule := range map[string]func(faultstore.Call) faultstore.Fault{
		"the lease": func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Acquire {
				f.Kind = faultstore.ApplyThenFail
			}
			return f
		},
		"the members": func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Watch {
				f = faultstore.Fault{Kind: faultstore.Drop, Hang: true}
			}
			return f
		},
		"everything": func(faultstore.Call) faultstore.Fault { return faultstore.Fault{Kind: faultstore.Drop, Hang: true} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.node("a")
				n.store.SetRule(rule)
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				began := time.Now()
				_, err := membership.Join(ctx, n.keeper, "g")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(began), 26*time.Second, "Join returns when its context ends")
				if name == "the members" {
					require.ErrorContains(t, err, "the members are not known yet")
				} else {
					require.ErrorContains(t, err, "the member lease is not held yet")
					require.ErrorIs(t, err, lease.ErrUnknown, "it says what the store had to say")
				}
				n.heal()
				time.Sleep(4 * ttl)
				require.Empty(t, w.standing(), "nothing is left behind")
				n.join()
				require.Equal(t, "a*", n.sees(), "and joining again works")
			})
		})
	}
}

func TestJoinOnClosedKeeper(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := membership.Join(ctx, n.keeper, "g")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, n.keeper.Close(t.Context()))
		_, err = membership.Join(t.Context(), n.keeper, "g")
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}
