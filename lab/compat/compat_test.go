//go:build linux

package compat

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/apicheck"
	"github.com/holdfast-go/holdfast/lab/compat/peer"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/sharding"
)

const patience = 30 * time.Second // for a step that takes seconds at most

// candidacy is more than it takes until the host of a singleton knows of a node that has
// joined. It invites no other, and a change of host without an invitation is a cold start.
const candidacy = 2 * time.Second

// nodes are those of one machine.
type nodes struct {
	t      *testing.T
	place  *machine.Place
	store  string
	former string // a program
	all    []*one
}

// one is a node.
type one struct {
	*machine.Process[peer.Report]
	t    *testing.T
	told map[string]int // how often it was told what
}

// start starts a node, of the former version or of this one.
func (n *nodes) start(id string, former, hosts bool) *one {
	n.t.Helper()
	program := ""
	if former {
		program = n.former
	}
	p, err := machine.StartProgram[peer.Report](n.place, program, id, peer.Env, peer.Settings{ID: id, Store: n.store, Hosts: hosts})
	require.NoError(n.t, err)
	o := &one{Process: p, t: n.t, told: map[string]int{}}
	n.all = append(n.all, o)
	_, err = p.Await(n.t.Context(), patience, peer.Up, func(r peer.Report) bool { return r.Did == peer.Up })
	require.NoError(n.t, err)
	o.do(peer.Join)
	return o
}

// do has a node carry out an order.
func (o *one) do(what string) peer.Report {
	o.t.Helper()
	require.NoError(o.t, o.Tell(peer.Order{Do: what}))
	o.told[what]++
	n := 0
	r, err := o.Await(o.t.Context(), patience, what, func(r peer.Report) bool {
		if r.Did == what {
			n++
		}
		return n == o.told[what]
	})
	require.NoError(o.t, err)
	require.Empty(o.t, r.Err, "%s: %s", o.ID, what)
	return r
}

// holds waits until a node has so many shards, of as many nodes that host.
func (o *one) holds(shards, of int) {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		r := o.do(peer.Look)
		return r.Held == shards && r.Nodes == of
	}, patience, 50*time.Millisecond, "%s does not hold %d shards", o.ID, shards)
}

// TestLastReleaseBesideThisVersion: a singleton and shards go from nodes of one version
// to nodes of the other and back, while nodes of both send to them. All is handled once
// and in order, state goes along, and no actor runs in two places. A cluster in which a
// node says that a move took too long to keep the order proves nothing of that: then all
// of it is done again, with another. Without a release it passes.
func TestLastReleaseBesideThisVersion(t *testing.T) {
	release, err := apicheck.LastRelease(root)
	require.NoError(t, err)
	if release == "" {
		fmt.Println("compat: no release is tagged in this clone: nothing to compare with")
		return
	}
	etcdtest.Skip(t)
	program := former(t, root, release, os.DirFS("peer"))
	for range 3 {
		if upgraded(t, program) {
			return
		}
	}
	t.Fatal("no move in time in three clusters")
}

// upgraded does all of it with one cluster, and reports whether it tells anything of order.
func upgraded(t *testing.T, program string) bool {
	place, err := machine.NewPlace(false)
	require.NoError(t, err)
	defer place.End()
	n := &nodes{t: t, place: place, former: program, store: "etcd://" + strings.TrimPrefix(etcdtest.Start(t).Endpoints()[0], "http://")}
	defer n.kill()

	a := n.start("former-a", true, true)
	senders := []*one{n.start("former-sender", true, false), n.start("present-sender", false, false)}
	a.holds(peer.Shards, 1)
	for _, s := range senders {
		s.do(peer.Send)
	}

	b := n.start("present-b", false, true) // gets half of the shards from a coordinator of the former version
	a.holds(peer.Shards/2, 2)
	b.holds(peer.Shards/2, 2)
	a.do(peer.Leave) // the singleton goes to b
	a.do(peer.Join)
	time.Sleep(candidacy)
	b.do(peer.Leave) // and back
	b.do(peer.Join)
	a.do(peer.Drain)
	b.holds(peer.Shards, 2)
	a.do(peer.Undrain)
	a.holds(peer.Shards/2, 2)
	b.do(peer.Drain)
	a.holds(peer.Shards, 2)
	b.do(peer.Undrain)
	b.holds(peer.Shards/2, 2)
	a.do(peer.Stop) // an upgrade: this version takes over all, the coordinator's part too
	b.holds(peer.Shards, 1)

	c := n.start("former-c", true, true) // and a step back
	c.holds(peer.Shards/2, 2)
	time.Sleep(candidacy)
	b.do(peer.Stop)
	c.holds(peer.Shards, 1)

	for _, o := range append(senders, c) {
		require.Empty(t, o.do(peer.Look).Differs, "%s refuses another, or sees other settings", o.ID)
	}
	ok := n.judge(senders)
	for _, o := range append(senders, c) {
		o.do(peer.Stop)
	}
	return ok
}

// kill ends all nodes, and shows what they said if the test failed.
func (n *nodes) kill() {
	for _, o := range n.all {
		if _ = o.Kill(); n.t.Failed() {
			for _, r := range o.Said() {
				switch {
				case r.Did == peer.Told:
					n.t.Log(o.ID, r.Event)
				case r.Lifespan != nil:
					n.t.Logf("%s %+v", o.ID, *r.Lifespan)
				default:
					n.t.Log(o.ID, r.Did)
				}
			}
		}
	}
}

// unordered reports whether a node said that it could not keep the order of mail.
func (n *nodes) unordered() bool {
	return slices.ContainsFunc(n.all, func(o *one) bool {
		return slices.ContainsFunc(o.Said(), func(r peer.Report) bool {
			return r.Did == peer.Told && strings.Contains(r.Event, sharding.OrderNotKept.String())
		})
	})
}

// judge compares what was sent with what the actors have handled. It returns false if the
// order was not kept, and a node had said so.
func (n *nodes) judge(senders []*one) (inOrder bool) {
	n.t.Helper()
	sent := map[string]map[string]uint64{}
	for _, s := range senders {
		r := s.do(peer.Quiet)
		require.Empty(n.t, r.Failed, "%s: asks failed", s.ID)
		for to, streams := range r.Sent {
			if sent[to] == nil {
				sent[to] = map[string]uint64{}
			}
			for stream, count := range streams {
				require.Greater(n.t, count, uint64(10), "%s to %s", stream, to)
				sent[to][stream] = count
			}
		}
	}
	require.Len(n.t, sent, len(peer.Entities())+1)
	var ledgers map[string]peer.Ledger
	var late []string
	for _, s := range senders {
		require.Eventually(n.t, func() bool { // what was sent last may be on its way
			ledgers = s.do(peer.Ledgers).Ledgers
			for to, streams := range sent {
				for stream, count := range streams {
					if ledgers[to].Last[stream] < count || len(ledgers[to].Missing[stream]) > 0 {
						return false
					}
				}
			}
			return true
		}, patience, 100*time.Millisecond, "messages are missing")
		for to, streams := range sent {
			late = append(late, ledgers[to].Late...)
			require.Empty(n.t, ledgers[to].Wrong, "%s", to)
			require.Zero(n.t, ledgers[to].Others, "%s was sent what is not understood", to)
			require.Equal(n.t, streams, ledgers[to].Last, "%s", to)
		}
	}
	n.onePlace()
	if n.unordered() && len(late) > 0 {
		n.t.Log("a node says that the order of mail was not kept:", late)
		return false
	}
	require.Empty(n.t, late, "out of order")
	return true
}

// onePlace: the lives of each actor follow one another, on nodes of both versions.
func (n *nodes) onePlace() {
	n.t.Helper()
	type life struct {
		peer.Lifespan
		on string
	}
	lives := map[string][]life{}
	for _, o := range n.all {
		for _, r := range o.Said() {
			if r.Lifespan != nil {
				lives[r.Lifespan.Name] = append(lives[r.Lifespan.Name], life{*r.Lifespan, o.ID})
			}
		}
	}
	require.Len(n.t, lives, len(peer.Entities())+1)
	for name, all := range lives {
		slices.SortFunc(all, func(a, b life) int { return int(a.At - b.At) })
		var versions []string
		for i, l := range all {
			require.Equal(n.t, i%2 == 0, l.Began, "%s: two at once: %+v", name, all)
			if l.Began {
				version, _, _ := strings.Cut(l.on, "-")
				versions = append(versions, version)
			}
			if i > 0 {
				require.GreaterOrEqual(n.t, l.Token, all[i-1].Token, "%s: %+v", name, all)
			}
		}
		text := strings.Join(versions, " ")
		require.Contains(n.t, text, "former present", name)
		require.Contains(n.t, text, "present former", name)
		if name == peer.Singleton {
			require.Equal(n.t, "former present former present former", text)
		}
		n.t.Logf("%s: %s", name, text)
	}
}
