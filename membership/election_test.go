package membership_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// The first member leads until it leaves; each change is told once, in order, to
// everybody; then the next leads at once.
func TestLeaderLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b, c := w.member("a"), w.member("b"), w.member("c")
		time.Sleep(5 * ttl)
		require.Equal(t, "a*", a.story())
		require.Equal(t, "a", b.story())

		began := time.Now()
		a.announce()
		require.Equal(t, began, time.Now(), "no wait")
		next, _ := c.election.Leader()
		require.Contains(t, []string{"b", "c"}, next.ID, "the next leads at once")
		require.Equal(t, "-a* b c", a.sees(), "who is leaving is still a member")
		require.False(t, a.leads())
		require.Contains(t, w.standing(), "leaving/g/a/"+a.keeper.Owner().Incarnation)

		a.leave()
		require.Equal(t, "b c*", c.sees())
		require.Len(t, w.standing(), 3, "of the one that left nothing stands")
		time.Sleep(5 * ttl)
		for _, n := range []*node{b, c} {
			published := of[membership.LeaderChanged](n.stream.all())
			require.Equal(t, n.leaders.last().Leader, published[len(published)-1].Leader, "the EventStream is told, too, by value")
			l, self := n.election.Leader()
			require.Equal(t, next, l)
			require.Equal(t, n.id == next.ID, self)
			checkChanges(t, n)
		}
	})
}

// checkChanges: what one follower was told fits together.
func checkChanges(t *testing.T, n *node) {
	t.Helper()
	var last lease.Owner
	for i, c := range n.leaders.all() {
		require.Equal(t, last, c.Previous, "Previous is what was told last: %s", n.story())
		require.Equal(t, c.Leader.Incarnation == n.keeper.Owner().Incarnation, c.IsSelf)
		if i > 0 && c.Skipped == 0 {
			require.NotEqual(t, c.Previous, c.Leader, "a change changes something: %s", n.story())
		}
		require.Equal(t, "g", c.Group)
		last = c.Leader
	}
	for i, c := range n.members.all() {
		if i > 0 {
			require.Greater(t, c.Now.Version, n.members.told[i-1].Now.Version)
		}
	}
}

// What b is told when it follows a: it may win before it hears that a's record is
// gone.
var handedOn = []string{"a . b*", "a b*", "a b*(+1)"}

// A node that is cut off from the store stops believing before others see it gone,
// in its leadership and in its membership; it comes back by itself.
func TestCutOffFromTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		term, ok := a.group.Term()
		require.True(t, ok)
		lead, ok := a.election.Term()
		require.True(t, ok)
		require.Equal(t, "leader/g", lead.Name())
		lost := 0
		a.group.OnLost(func(l lease.Loss) {
			lost++
			require.Equal(t, term.Token(), l.Token)
		})
		time.Sleep(time.Second)
		a.store.Partition()
		began := time.Now()
		until(t, ttl, "a stops believing", func() bool { return !a.leads() && a.sees() == "b" })
		require.Less(t, time.Since(began), ttl-ttl/10+time.Millisecond)
		require.Equal(t, "a b*", b.sees(), "b still lists it")
		require.False(t, b.leads())
		require.Error(t, term.Context().Err())
		require.Equal(t, 1, lost)
		_, ok = a.group.Self()
		require.False(t, ok)
		_, ok = a.group.Term()
		require.False(t, ok)
		_, ok = a.election.Term()
		require.False(t, ok)
		require.Equal(t, "a* .", a.story(), "told at once")
		events := of[membership.Lost](a.stream.all())
		require.Len(t, events, 1)
		require.Equal(t, "g", events[0].Group)
		require.ErrorIs(t, events[0].Loss.Reason, lease.ErrExpired)

		until(t, ttl, "b leads", b.leads)
		require.Equal(t, "b*", b.sees())
		time.Sleep(3 * ttl)
		require.Equal(t, "b", a.sees(), "what it knew last, without itself")

		a.heal()
		until(t, 2*time.Second, "a is back", func() bool { return a.sees() == "a* b" && b.sees() == "a b*" })
		again, ok := a.group.Term()
		require.True(t, ok)
		require.Equal(t, term.Name(), again.Name(), "the same lease")
		require.Greater(t, again.Token(), term.Token(), "a new term")
		until(t, 2*time.Second, "a knows who leads now", func() bool { return a.story() == "a* . b" })
		require.Contains(t, handedOn, b.story())
		require.Equal(t, 1, lost)
	})
}

// The follower who was about to be told that this node leads is told the truth.
func TestIsSelfIsCheckedWhenItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join()
		e := must(a.group.Leadership())(t)
		synctest.Wait()
		_, self := e.Leader()
		require.True(t, self)
		a.crash()
		time.Sleep(2 * ttl) // no timer of the node fires; nothing has noticed
		e.Follow(a.leaders.add)
		require.Equal(t, ".", a.story())
	})
}

// A slow follower holds up nobody and is told the newest, with what it missed.
func TestSlowFollower(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		watcher := w.node("w").join()
		watcher.announce() // it follows the leader and does not stand
		watcher.stand()
		hold := make(chan struct{})
		var slow tape[membership.LeaderChanged]
		slow.hook = func(membership.LeaderChanged) { <-hold }
		watcher.election.Follow(slow.add)
		var slowMembers tape[membership.MembersChanged]
		slowMembers.hook = func(membership.MembersChanged) { <-hold }
		watcher.group.Follow(slowMembers.add)
		synctest.Wait()
		for _, id := range []string{"a", "b", "a"} {
			n := w.node(id).join().stand()
			n.announce()
			n.leave()
		}
		last := w.member("z")
		require.Equal(t, "a . b . a . z", watcher.story(), "others are not held up")
		require.Len(t, slow.all(), 1)
		close(hold)
		all := slow.all()
		require.Len(t, all, 2)
		require.Equal(t, last.keeper.Owner(), all[1].Leader)
		require.Equal(t, lease.Owner{}, all[1].Previous, "what it was told last")
		require.Equal(t, 6, all[1].Skipped)

		told := slowMembers.all()
		require.Len(t, told, 2)
		require.Equal(t, "+z", changeText(told[1]), "the differences from what it was told last")
		require.Equal(t, told[1].Now.Version, told[0].Now.Version+uint64(told[1].Skipped)+1)
	})
}

// A name of the election's that is in use, and a record of the leader's that is
// none, are reported and waited out.
func TestLeaderNameInUse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a").join()
		h := must(a.keeper.Lease("leader/g"))(t)
		_, err := a.group.Leadership()
		require.ErrorIs(t, err, lease.ErrNameInUse)
		require.NoError(t, h.Close(t.Context()))
		a.stand()
		require.True(t, a.leads())
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reader := sdkmetric.NewManualReader()
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		defer func() { _ = provider.Shutdown(context.Background()) }()
		read := func() map[string]int64 {
			synctest.Wait()
			var all metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(context.Background(), &all))
			got := map[string]int64{}
			point := func(name string, p metricdata.DataPoint[int64]) {
				keeper, _ := p.Attributes.Value("holdfast.keeper")
				group, _ := p.Attributes.Value("holdfast.group")
				require.Equal(t, "a g", keeper.AsString()+" "+group.AsString())
				got[name[len("holdfast.membership."):]] = p.Value
			}
			for _, scope := range all.ScopeMetrics {
				if !strings.HasSuffix(scope.Scope.Name, "/membership") {
					continue
				}
				for _, m := range scope.Metrics {
					require.NotEmpty(t, m.Description)
					switch data := m.Data.(type) {
					case metricdata.Sum[int64]:
						point(m.Name, data.DataPoints[0])
					case metricdata.Gauge[int64]:
						point(m.Name, data.DataPoints[0])
					}
				}
			}
			return got
		}
		a := w.node("a", func(c *lease.Config) { c.MeterProvider = provider }).join().stand()
		w.node("b").join()
		require.Equal(t, map[string]int64{"members": 2, "leading": 1, "leader.changes": 1, "losses": 0}, read())

		a.store.Partition()
		time.Sleep(2 * ttl)
		require.Equal(t, map[string]int64{"members": 1, "leading": 0, "losses": 1, "leader.changes": 2}, read())
		a.heal()
		until(t, ttl, "it is back", a.leads)
		require.Equal(t, map[string]int64{"members": 2, "leading": 1, "losses": 1, "leader.changes": 3}, read())
	})
}

// One line for each transition, and for what can't be read.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a := w.member("a", membership.WithLogger(zap.New(core)))
		b := w.node("b").join()
		b.announce()
		b.leave()
		h := must(b.keeper.Lease("member/g/x/y"))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		require.Equal(t, "a*", a.sees())
		require.NoError(t, h.Close(t.Context()))
		a.store.Partition()
		time.Sleep(15 * ttl)
		a.heal()
		until(t, ttl, "it is back", a.leads)
		w.node("a").join()
		until(t, 2*time.Second, "the later counts", func() bool { return a.sees() == "a" })
		a.leave()

		lines := map[string]int{}
		for _, l := range logs.All() {
			lines[l.Message]++
			require.Equal(t, "g", l.ContextMap()["group"])
			require.Equal(t, "a", l.ContextMap()["node"])
		}
		for line, count := range map[string]int{
			"member joined": 4, "member left": 3, "member is leaving": 1, "membership lost": 1, "leaving": 1,
			"a record of the group can't be read, left alone":                1,
			"not listed any more: a later incarnation of this ID has joined": 1,
		} {
			require.Equal(t, count, lines[line], "%s: %v", line, lines)
		}
		require.Positive(t, lines["leader changed"])
	})
}
