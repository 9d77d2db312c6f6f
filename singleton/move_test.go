package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// everywhere starts the singleton x, with a state, on nodes: the first hosts, all know each other.
func (c *cluster) everywhere(log *[]string, ids []string, opts ...singleton.Option) (ns []*node, ms []*singleton.Manager) {
	for _, n := range c.nodes(ids...) {
		ns, ms = append(ns, n), append(ms, n.keeping(log, opts...))
		time.Sleep(time.Second)
	}
	return ns, ms
}

// A singleton moves with its state to the node that is named, or else to the best, and stays there.
func TestMove(t *testing.T) {
	for _, to := range []string{"c", ""} {
		bubble(t, func(t *testing.T, c *cluster) {
			var log []string
			ns, ms := c.everywhere(&log, []string{"a", "b", "c"})
			ns[1].system.Root.Send(ms[1].PID(), job{Number: 7})
			time.Sleep(time.Second)
			told := ns[0].events()
			require.NoError(t, ms[0].Move(t.Context(), to))
			at := c.record("singleton/x").Owner
			require.NotEqual(t, "a", at.ID)
			if to != "" {
				require.Equal(t, to, at.ID)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"started with 0 on a", "started with 7 on " + at.ID}, log, "it stays there")
			require.Len(t, told.of(singleton.HandedOver), 1)
			require.Empty(t, told.of(singleton.ColdStart))
			err := ms[0].Move(t.Context(), "b")
			require.ErrorIs(t, err, lease.ErrNotHeld)
			require.ErrorContains(t, err, "the host is "+at.ID+" "+at.Address)
		})
	}
}

// What can't be moved, or would come back, stays: the error says why.
func TestMovesThatAreRefused(t *testing.T) {
	preferred := singleton.WithPreferred("a", "b")
	for what, x := range map[string]struct {
		opts []singleton.Option
		ids  string
		to   string
		is   error
		text string
	}{
		"unknown":        {nil, "abc", "d", lease.ErrInvalid, `to "d": that node would not take over; would: "`},
		"here":           {nil, "abc", "a", lease.ErrInvalid, "hosts it already"},
		"alone":          {nil, "a", "", nil, "no other node is known that would take over"},
		"less preferred": {[]singleton.Option{preferred}, "abc", "c", lease.ErrInvalid, `to "c": this node is preferred`},
		"no other":       {[]singleton.Option{preferred}, "abc", "", lease.ErrInvalid, "drain this node"},
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			var log, ids []string
			for _, id := range x.ids {
				ids = append(ids, string(id))
			}
			_, ms := c.everywhere(&log, ids, x.opts...)
			err := ms[0].Move(t.Context(), x.to)
			require.ErrorContains(t, err, x.text)
			require.ErrorContains(t, err, `singleton "x": `)
			if x.is != nil {
				require.ErrorIs(t, err, x.is)
			}
			synctest.Wait()
			require.Len(t, log, 1, "it runs on")
		})
	}
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		l, err := a.keeper.Lease("my/own")
		require.NoError(t, err)
		m := a.hosts("x", singleton.WithLease(bare{l}))
		require.ErrorIs(t, m.Move(t.Context(), ""), lease.ErrUnsupported)
		require.ErrorIs(t, b.run("x", singleton.WithProxyOnly()).Move(t.Context(), ""), lease.ErrNotHeld)
		require.NoError(t, m.Stop(t.Context()))
		require.ErrorContains(t, m.Move(t.Context(), ""), "the manager has ended")
	})
}

// What a leader hosts stays there; where there is no leader it moves, and to the next leader then.
func TestMovesWithALeader(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		x.lead(0)
		x.hosts(0)
		time.Sleep(time.Second)
		err := x.ms[0].Move(t.Context(), "n1")
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "have another node lead")
		x.leaders[0].Set(lease.Owner{}) // it stays where it is, and may move
		time.Sleep(time.Second)
		require.NoError(t, x.ms[0].Move(t.Context(), "n1"))
		time.Sleep(time.Minute)
		x.hosts(1)
		x.lead(2)
		time.Sleep(time.Second)
		x.hosts(2)
		require.Equal(t, []string{"n0", "n1", "n2"}, c.hosted())
		c.log.check()
	})
}

// A node that does not take over leaves the child where it is; one that dies half way leaves the
// name free, and the lease elects.
func TestMovesThatFail(t *testing.T) {
	for _, declines := range []bool{true, false} {
		bubble(t, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			m := a.hosts("x")
			b.pretend("x", func() bool { return declines }, time.Millisecond)
			b.introduce(m, "x")
			time.Sleep(10 * time.Millisecond)
			want := `not moved: node "b": it does not answer`
			if declines {
				want = `not moved: node "b": as a test`
			}
			require.ErrorContains(t, m.Move(t.Context(), "b"), want)
			require.True(t, active(m)())
			require.Len(t, c.log.snapshot(), 1)
		})
	}
	bubble(t, func(t *testing.T, c *cluster) {
		var log []string
		ns := c.nodes("a", "b", "c")
		ma := ns[0].runProps("x", actor.PropsFromProducer(func() actor.Actor {
			return &keepsake{n: ns[0], restored: &log, takes: 3 * time.Second}
		}))
		until(t, time.Second, "hosts", active(ma))
		ns[1].keeping(&log)
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, ns[1].crash)
		began := time.Now()
		require.ErrorContains(t, ma.Move(t.Context(), "b"), "not moved")
		require.Less(t, time.Since(began), 5*time.Second)
		until(t, 2*ttl, "hosts again", active(ma))
		require.NoError(t, ma.Stop(t.Context()))
	})
}

// Of moves that are asked for at once one is made, and the others hear where it went; callers that
// leave change nothing.
func TestConcurrentMoves(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var log []string
		ns, ms := c.everywhere(&log, []string{"a", "b", "c", "d"})
		left, leave := context.WithCancel(t.Context())
		leave()
		errs := make([]error, 9)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				require.Error(t, ms[0].Move(left, "b"))
				errs[i] = ms[0].Move(t.Context(), ns[1+i%3].id)
			})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, log, 2, "one move")
		moved := 0
		for i, err := range errs {
			if err == nil {
				moved++
				require.Equal(t, c.record("singleton/x").Owner.ID, ns[1+i%3].id)
			} else {
				require.ErrorIs(t, err, lease.ErrNotHeld)
			}
		}
		require.Equal(t, 1, moved)
	})
}

// A child that can't start here moves, too, and a move waits for one that is being made, and for one
// that takes its time to stop.
func TestMovesOfChildrenThatAreNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.runProps("x", actor.PropsFromProducer(func() actor.Actor { panic("not here") }), singleton.WithBackoff(time.Minute, time.Minute))
		until(t, 2*time.Second, "fails", func() bool { return ma.Status().Phase == singleton.Backoff })
		mb := b.run("x")
		time.Sleep(time.Second)
		require.NoError(t, ma.Move(t.Context(), "b"))
		until(t, time.Second, "hosts", active(mb))
	})
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.runProps("x", actor.PropsFromProducer(func() actor.Actor {
			time.Sleep(3 * time.Second)
			return &keepsake{n: a, restored: new([]string), takes: 3 * time.Second}
		}))
		until(t, time.Second, "is being made", func() bool { return ma.Status().Phase == singleton.Starting })
		mb := b.run("x")
		err := ma.Move(contextFor(5*time.Second), "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "is still handing over")
		until(t, 4*time.Second, "goes on", active(mb))
	})
}

// A drained node hosts nothing, and takes nothing, until it is not drained any more.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		const names = 20
		a, b := c.node("a"), c.node("b")
		var as, bs []*singleton.Manager
		for i := range names {
			as = append(as, a.hosts(fmt.Sprint("s", i), singleton.WithPreferred("a")))
		}
		for i := range names {
			bs = append(bs, b.run(fmt.Sprint("s", i), singleton.WithPreferred("a")))
		}
		time.Sleep(time.Second)
		told := a.events()
		require.NoError(t, singleton.Drain(t.Context(), a.system))
		require.Len(t, told.of(singleton.HandedOver), names)
		late := a.run("late")
		time.Sleep(time.Minute)
		for i := range names {
			require.True(t, active(bs[i])())
			require.Equal(t, "the node is drained", as[i].Status().WhyNot)
		}
		require.Equal(t, singleton.Standby, late.Status().Phase)
		require.ErrorContains(t, bs[0].Move(t.Context(), "a"), "no other node is known")
		require.NoError(t, bs[1].Stop(t.Context()))
		b.crash()
		time.Sleep(time.Minute)
		require.ErrorContains(t, singleton.Health(a.system)(t.Context()), "has had no host")
		for i := range names {
			require.Equal(t, singleton.Standby, as[i].Status().Phase)
		}
		singleton.Undrain(a.system)
		singleton.Undrain(nil)
		for _, m := range append(as, late) {
			until(t, 2*time.Second, "hosts", active(m))
			require.Empty(t, m.Status().WhyNot)
		}
	})
}

// What no other node takes, and what follows the leader, is hosted on by a drained node, and named.
func TestWhatADrainedNodeKeeps(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m, other := a.hosts("x"), a.hosts("other")
		left, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, singleton.Drain(left, a.system), context.Canceled)
		require.ErrorIs(t, singleton.Drain(left, nil), lease.ErrInvalid)
		err := singleton.Drain(t.Context(), a.system)
		require.ErrorContains(t, err, `singleton "x": no other node is known`)
		require.ErrorContains(t, err, `singleton "other": `)
		a.system.Root.Send(m.PID(), job{Number: 1})
		a.store.Partition()
		time.Sleep(2 * ttl)
		a.store.Heal()
		until(t, 2*ttl, "hosts again", active(m))
		b := c.node("b")
		mb := b.run("x")
		time.Sleep(time.Second)
		require.ErrorContains(t, singleton.Drain(t.Context(), a.system), `"other"`)
		until(t, time.Second, "moved", active(mb))
		require.True(t, active(other)())
	})
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		x.lead(0)
		x.hosts(0)
		time.Sleep(time.Second)
		require.ErrorContains(t, singleton.Drain(t.Context(), x.ns[0].system), "have another node lead")
		require.True(t, active(x.ms[0])())
		require.NoError(t, singleton.Drain(t.Context(), x.ns[1].system))
		x.lead(1) // drained or not
		x.hosts(1)
		require.NoError(t, singleton.Drain(t.Context(), x.ns[0].system))
		time.Sleep(time.Minute)
		x.hosts(1)
	})
}

// Two nodes that are drained at the same moment hand nothing to each other for ever.
func TestTwoNodesThatAreDrainedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		var ms []*singleton.Manager
		for i := range 12 {
			first, second := a, b
			if i%2 == 0 {
				first, second = b, a
			}
			ms = append(ms, first.hosts(fmt.Sprint("s", i)), second.run(fmt.Sprint("s", i)))
		}
		time.Sleep(time.Second)
		done := make(chan error, 2)
		for _, n := range []*node{a, b} {
			go func() { done <- singleton.Drain(t.Context(), n.system) }()
		}
		require.Error(t, errors.Join(<-done, <-done), "one may be done before the other begins")
		time.Sleep(time.Minute)
		hosted := 0
		for _, m := range ms {
			if active(m)() {
				hosted++
			}
		}
		require.Equal(t, 12, hosted, "all are hosted on")
		require.Less(t, len(c.log.snapshot()), 40)
	})
}
