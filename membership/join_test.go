package membership_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A member is listed everywhere, with what it said of itself; Join returns with
// the snapshot complete.
func TestJoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join(membership.WithRoles("worker", "front", "worker"), membership.WithCapacity(7),
			membership.WithLabels(map[string]string{"version": "1.2", "zone": "a"}))
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
		require.Equal(t, map[string]string{"version": "1.2", "zone": "a"}, m.Labels)
		require.Equal(t, m.Labels, a.group.Labels())
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
		users := map[string]string{"zone": "eu", "format": "9", "roles": "x", "capacity": "-1", "labels": "x"}
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
		labels := map[string]string{}
		for i := range membership.MaxLabels + 1 {
			labels[many[i]] = "x"
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
			{"empty label", "g", "WithLabels: label \"\": invalid: 0 bytes, must have 1 to 128", n.keeper, membership.WithLabels(map[string]string{"": "x"})},
			{"label without a value", "g", `WithLabels: value of label "version" "": invalid: 0 bytes`, n.keeper, membership.WithLabels(map[string]string{"version": ""})},
			{"many labels", "g", "labels: invalid: 17, at most 16", n.keeper, membership.WithLabels(labels)},
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
					require.ErrorIs(t, err, faultstore.ErrInjected, "it says what the store had to say")
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

// The announcement is kept, and not forgotten by those who saw it, until the
// member is gone.
func TestLeaving(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		a.announce()
		a.announce() // again
		late := w.node("c").join()
		require.Equal(t, "-a b c*", late.sees(), "who comes later knows it")
		time.Sleep(3 * ttl)
		require.Equal(t, "-a b* c", b.sees())
		var back []string
		b.members.hook = func(ch membership.MembersChanged) {
			if m, ok := ch.Now.Find("a"); ok && !m.Leaving {
				back = append(back, "a")
			}
		}
		a.leave()
		require.Empty(t, back)
		require.Equal(t, "b* c", b.sees())

		// The same Keeper may join again, and is not leaving then.
		a.join().stand()
		require.Equal(t, "a b* c", b.sees())
	})
}

// Leave takes its steps one after the other, however long the store takes.
func TestLeaveInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		inc := a.keeper.Owner().Incarnation
		delays := map[string]time.Duration{"leader/g": 2 * time.Second, "member/g/a/" + inc: 1500 * time.Millisecond, "leaving/g/a/" + inc: time.Second}
		a.store.SetRule(func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Release || c.Op == faultstore.Acquire {
				require.Len(t, c.Names, 1, "each on its own")
				f = faultstore.Fault{Kind: faultstore.Delay, Delay: delays[c.Names[0]]}
			}
			return f
		})
		history := w.watch()
		began := time.Now()
		a.leave()
		require.Equal(t, []string{"+leaving/g/a/" + inc, "-leader/g", "-member/g/a/" + inc, "-leaving/g/a/" + inc}, history())
		require.Equal(t, 5500*time.Millisecond, time.Since(began))
	})
}

// Leave is bounded, by its context and by the Keeper's bounds, whatever the store
// does; what it could not confirm it says.
func TestLeaveIsBounded(t *testing.T) {
	for name, limit := range map[string]time.Duration{"by its context": 3 * time.Second, "by the Keeper": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, b := w.member("a"), w.member("b")
				a.store.Partition()
				ctx := t.Context()
				if limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				began := time.Now()
				err := a.group.Leave(ctx)
				require.ErrorIs(t, err, lease.ErrUnknown)
				if limit > 0 {
					require.Equal(t, limit, time.Since(began))
				} else {
					require.LessOrEqual(t, time.Since(began), 6*ttl)
				}
				require.False(t, a.leads())
				_, ok := a.group.Self()
				require.False(t, ok)
				until(t, 2*ttl, "b leads", b.leads)
				require.Equal(t, "b*", b.sees())
				a.heal()
				time.Sleep(4 * ttl)
				require.Len(t, w.standing(), 2)
			})
		})
	}
}

// The end of the Keeper ends the membership: others are told, and nothing is
// tried again.
func TestKeeperClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		require.NoError(t, a.keeper.Close(t.Context()), "the group gives up what it holds")
		synctest.Wait()
		require.Equal(t, "b*", b.sees())
		require.True(t, b.leads())
		require.False(t, a.leads())
		events := of[membership.Lost](a.stream.all())
		require.Len(t, events, 1)
		require.ErrorIs(t, events[0].Loss.Reason, lease.ErrClosed)
		require.ErrorIs(t, a.group.AnnounceLeaving(t.Context()), nil)
		require.NoError(t, a.group.Leave(t.Context()))
	})
}

// An announcement that fails is said, tried on, and leadership is given up anyway.
func TestAnnouncementFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		a.store.SetRule(func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Acquire {
				f.Kind = faultstore.Drop
			}
			return f
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.group.AnnounceLeaving(ctx), context.DeadlineExceeded)
		synctest.Wait()
		require.True(t, b.leads())
		require.Equal(t, "a b*", b.sees())
		a.store.SetRule(nil)
		until(t, 2*time.Second, "announced", func() bool { return b.sees() == "-a b*" })
	})
}

// asking is a core that calls f to know whether it takes a line.
type asking struct {
	zapcore.Core
	f func()
}

func (c asking) Enabled(l zapcore.Level) bool { c.f(); return c.Core.Enabled(l) }

func (c asking) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.Core.Check(e, ce)
}

// A logger may ask the group, where it writes and where it says which lines it takes: no lock of
// the group's is held then.
func TestALoggerMayCallTheGroup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var group atomic.Pointer[membership.Group]
		ask := func() {
			if g := group.Load(); g != nil {
				_ = g.Health(context.Background())
			}
		}
		core, _ := observer.New(zap.InfoLevel)
		log := zap.New(asking{core, ask}, zap.Hooks(func(zapcore.Entry) error { ask(); return nil }))
		a := w.node("a").join(membership.WithLogger(log))
		group.Store(a.group)
		b := w.node("b").join()
		// A record that can't be read is told of.
		h := must(b.keeper.Lease("member/g/x/y"))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		synctest.Wait()
		require.NoError(t, h.Release(t.Context()))
		// And so is another life of its ID.
		a.store.Partition()
		two := must(membership.Join(t.Context(), w.node("a", at("two:1")).keeper, "g"))(t)
		a.store.Heal()
		time.Sleep(ttl)
		require.ErrorIs(t, a.group.Superseded(), membership.ErrIDInUse)
		require.NoError(t, two.Leave(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		require.NoError(t, a.group.Leave(ctx))
	})
}

// TestLeadershipEndsWithMembership: whoever learns of the one finds the other ended.
func TestLeadershipEndsWithMembership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		until(t, time.Second, "a leads", a.leads)
		member, ok := a.group.Term()
		require.True(t, ok)
		lead, ok := a.election.Term()
		require.True(t, ok)
		was := make(chan bool, 1)
		context.AfterFunc(member.Context(), func() { was <- lead.CheckAlive() })
		time.Sleep(time.Millisecond)
		recs := must(w.store.Get(t.Context(), member.Name()))(t)
		must(w.store.Release(t.Context(), []store.Held{recs[0].Held()}))(t)
		require.False(t, <-was)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(lead.Context()), lease.ErrParentLost)
		until(t, 2*time.Second, "a leads again", a.leads)
	})
}

// TestWhatHangsOnAMembership: a lease of the user's ends with it, and Leave says if it is not
// released. A membership that was lost begins anew all the same.
func TestWhatHangsOnAMembership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		job := must(a.keeper.Lease("job", a.group.AsParent()))(t)
		won := must(job.Acquire(t.Context()))(t)
		require.True(t, won)
		lost := make(chan error, 2)
		job.OnLost(func(l lease.Loss) { lost <- l.Reason })

		a.store.Partition()
		time.Sleep(ttl)
		require.ErrorIs(t, <-lost, lease.ErrExpired, "the same session")
		a.heal()
		until(t, 3*time.Second, "a is back, though nobody released the job", func() bool { _, ok := a.group.Self(); return ok })

		won = must(job.Acquire(t.Context()))(t)
		require.True(t, won)
		began := time.Now()
		err := a.group.Leave(context.Background())
		require.ErrorIs(t, err, lease.ErrChildHeld)
		require.ErrorIs(t, <-lost, lease.ErrParentLost)
		require.LessOrEqual(t, time.Since(began), 4*ttl)
		require.NoError(t, job.Release(t.Context()))
		synctest.Wait()
		for rec, err := range w.store.List(t.Context(), store.Query{}) {
			require.NoError(t, err)
			require.Fail(t, "it stands", "%+v", rec)
		}
		_, err = a.keeper.Lease("late", a.group.AsParent())
		require.True(t, errors.Is(err, lease.ErrInvalid) && errors.Is(err, lease.ErrClosed), "%v", err)
	})
}

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		inputtest.Options(t, map[string][]any{
			"WithRoles":        {membership.WithRoles, "r"},
			"WithCapacity":     {membership.WithCapacity, 1},
			"WithLabels":       {membership.WithLabels, map[string]string{"x": "y"}},
			"WithEvents":       {membership.WithEvents, func(any) {}},
			"WithLeaseOptions": {membership.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLogger":       {membership.WithLogger, zap.NewNop()},
		}, nil, map[string]string{
			"WithLogger(nil)": "the default",
		}, func(o membership.Option) error {
			g, err := membership.Join(context.Background(), n.keeper, "g", o)
			if err != nil {
				return err
			}
			return g.Leave(context.Background())
		})
		n.join()
		n.leave()
	})
}

func TestNoContextIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		inputtest.Functions(t, map[string]func() error{
			"Join": func() error { _, err := membership.Join(inputtest.None, n.keeper, "g"); return err },
		})
		_, err := membership.Join(t.Context(), &lease.Keeper{}, "g")
		require.ErrorIs(t, err, lease.ErrInvalid)
		n.join()
		inputtest.Contexts(t, n.group)
		self, ok := n.group.Self()
		require.True(t, ok, "what is refused has changed nothing")
		require.False(t, self.Leaving)
		n.leave()
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(membership.Group), new(membership.Election), new(membership.Member), new(membership.Snapshot),
		new(membership.Static), new(membership.Preferences))
	_, err := new(membership.Group).Leadership()
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "membership.Join")

	// A follower of a zero Static may panic as one of any other may.
	var s membership.Static
	told := make(chan struct{})
	stop := s.Follow(func(membership.LeaderChanged) { defer close(told); panic("rude") })
	s.Set(lease.Owner{ID: "a"})
	<-told
	stop()
}

func at(address string) func(*lease.Config) {
	return func(c *lease.Config) { c.Address = address }
}

// A node whose ID another has that lives does not join, and disturbs the other not for
// long.
func TestAnIDThatIsInUseIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		require.NoError(t, g.Health(t.Context()))
		began := time.Now()
		_, err := membership.Join(t.Context(), two.keeper, "g")
		require.ErrorIs(t, err, membership.ErrIDInUse)
		require.ErrorContains(t, err, `"one:1"`)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(time.Second)
		require.NoError(t, g.Health(t.Context()))
		self, ok := g.Self()
		require.True(t, ok)
		require.Equal(t, "one:1", self.Address)
		require.NoError(t, g.Leave(t.Context()))
		require.ErrorIs(t, g.Health(t.Context()), lease.ErrClosed)

		recs := must(w.store.Get(t.Context(), "objection/g/a/"+two.keeper.Owner().Incarnation))(t)
		require.Empty(t, recs, "the objection is taken back")
		began = time.Now()
		g, err = membership.Join(t.Context(), two.keeper, "g")
		require.NoError(t, err, "it has left")
		require.Zero(t, time.Since(began))
		require.NoError(t, g.Leave(t.Context()))
	})
}

// One that died, or does not answer, is replaced after a moment; when it is back it
// says that it is superseded.
func TestALifeThatDoesNotAnswerIsSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		one.store.Partition()
		began := time.Now()
		h := must(membership.Join(t.Context(), two.keeper, "g"))(t)
		require.LessOrEqual(t, time.Since(began), time.Second+20*time.Millisecond)
		one.store.Heal()
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, g.Health(t.Context()), membership.ErrIDInUse)
		require.ErrorIs(t, g.Superseded(), membership.ErrIDInUse)
		require.ErrorContains(t, g.Health(t.Context()), `"two:1"`)
		require.NoError(t, h.Health(t.Context()))
		require.NoError(t, h.Leave(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, g.Health(t.Context()), "it is listed again")
		require.NoError(t, g.Superseded())

		one.store.Partition()
		time.Sleep(2 * ttl)
		require.Error(t, g.Health(t.Context()), "it is no member")
		one.store.Heal()
		require.NoError(t, g.Leave(context.Background()))
	})
}

// A node that leaves takes its objection back before Leave returns, however slow the store
// is.
func TestLeavingWaitsForTheObjectionToBeTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		one.store.Partition()
		h := must(membership.Join(t.Context(), two.keeper, "g"))(t)
		one.store.Heal()
		time.Sleep(3 * time.Second)
		objection := "objection/g/a/" + two.keeper.Owner().Incarnation
		require.Contains(t, w.standing(), objection)
		one.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Release && slices.Contains(c.Names, objection) {
				return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second}
			}
			return faultstore.Fault{}
		})
		began := time.Now()
		require.NoError(t, g.Leave(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		require.NotContains(t, w.standing(), objection)
		require.NoError(t, h.Leave(t.Context()))
	})
}
