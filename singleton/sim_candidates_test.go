package singleton_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/singleton"
)

var candidacies = simulate.New("singleton-candidates", 15, 1000)

// TestSimulationOfCandidates plays random histories of nodes that wait beside a host, which
// stays until it is stopped: links to it break and heal, nodes die and others come, at other
// addresses, a node that is preferred introduces itself and declines or is silent when it is
// asked, while the host is stopped or not, and time passes. Checked is each planned end of the host: where a node waits
// that it can reach, and could introduce itself to, the lease goes there with the state, and
// soon; and the host reports a state that it gives up. A move that is asked for goes to the node that is
// named, or else to any, with the state; or it fails, and the host goes on.
func TestSimulationOfCandidates(t *testing.T) {
	candidacies.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, c *cluster) {
			s := &candidateSim{t: t, c: c, r: candidacies.Random(seed)}
			defer func() {
				if t.Failed() {
					t.Log(s.trace)
				}
			}()
			s.run()
		})
	})
}

// heardAgain is longer than any node takes to introduce itself again.
const heardAgain = 25 * time.Second

// waiter is a node of such a history: one waits, or hosts.
type waiter struct {
	*node
	m     *singleton.Manager
	heard time.Time // since when the host may hear of it
}

type candidateSim struct {
	t     *testing.T
	c     *cluster
	r     *simulate.Random
	nodes int
	host  *waiter
	all   []*waiter // that wait
	died  []time.Time
	ghost *node       // that is preferred, and takes nothing
	haunt bool        // the host has heard of it
	says  atomic.Bool // it declines
	jobs  int
	log   []string // of children that begin
	trace []string
}

func (s *candidateSim) logf(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...)+"\n")
}

func (s *candidateSim) join() *waiter {
	n := s.c.node(fmt.Sprint("n", s.nodes))
	s.nodes++
	m := n.keeping(&s.log, singleton.WithPreferred("ghost"))
	s.logf("%s joins", n.id)
	return &waiter{node: n, m: m, heard: time.Now()}
}

func (s *candidateSim) run() {
	s.ghost = s.c.node("ghost")
	s.ghost.pretend("x", s.says.Load, time.Duration(s.r.Int64N(int64(900*time.Millisecond))))
	s.host = s.join()
	until(s.t, time.Second, "hosts", active(s.host.m))
	for range s.r.Each(10 + s.r.IntN(30)) {
		s.act(s.r.IntN(22))
		time.Sleep(simulate.Spread(s.r.Float64(), 10*time.Millisecond, time.Minute))
	}
	s.move()
}

func (s *candidateSim) act(what int) {
	switch {
	case what < 5 || len(s.all) == 0:
		if len(s.all) < 4 {
			s.all = append(s.all, s.join())
		}
	case what < 10:
		s.kill(s.r.IntN(len(s.all)))
	case what < 14:
		s.cut(s.all[s.r.IntN(len(s.all))], s.r.IntN(3))
	case what < 16:
		s.send(s.all[s.r.IntN(len(s.all))])
	case what < 17:
		s.appear()
	case what < 18:
		for range 2 + s.r.IntN(3) { // several die, but one
			if len(s.all) > 1 {
				s.kill(0)
			}
		}
	case what < 20:
		s.move()
	default:
		s.ask(s.all[s.r.IntN(len(s.all))], s.r.IntN(3) > 0)
	}
}

func (s *candidateSim) kill(i int) {
	x := s.all[i]
	s.logf("%s dies", x.id)
	x.crash()
	s.all, s.died = slices.Delete(s.all, i, i+1), append(s.died, time.Now())
}

// cut breaks the links of a node and the host, for a while.
func (s *candidateSim) cut(x *waiter, how int) {
	here, there := x.system.Address(), s.host.system.Address()
	switch how {
	case 0:
		s.c.net.Cut(here, there)
	case 1:
		s.c.net.CutOneWay(here, there)
	case 2:
		s.c.net.CutOneWay(there, here)
	}
	late := time.Since(x.heard) < 100*time.Millisecond // the host may not have heard of it
	d := simulate.Spread(s.r.Float64(), time.Millisecond, 20*time.Second)
	s.logf("%s - %s cut for %v", x.id, s.host.id, d)
	time.Sleep(d)
	s.c.net.Heal(here, there)
	if late {
		x.heard = time.Now().Add(heardAgain)
	}
}

// send has a node use its link to the host, both ways.
func (s *candidateSim) send(x *waiter) {
	s.jobs++
	x.system.Root.Send(x.m.PID(), job{Number: s.jobs})
	synctest.Wait()
}

// appear has the host hear of a node that it prefers, and ask it before long.
func (s *candidateSim) appear() {
	says := s.r.IntN(2) == 0
	s.says.Store(says)
	s.haunt = true
	s.logf("a preferred node appears, and will decline: %v", says)
	s.ghost.introduce(s.host.m, "x")
}

// ask has the host move to a node, or to any.
func (s *candidateSim) ask(x *waiter, named bool) {
	s.send(s.host)
	to := ""
	if named {
		to = x.id
	}
	known, events, lives := time.Since(x.heard) > 100*time.Millisecond, s.host.events(), len(s.log)
	err := s.host.m.Move(s.t.Context(), to)
	s.logf("%s was asked to move to %q: %v", s.host.id, to, err)
	handed := len(events.of(singleton.HandedOver))
	require.Empty(s.t, events.of(singleton.ColdStart))
	if err != nil {
		require.False(s.t, known && named, "%v, though it waits and could be reached", err)
		require.Zero(s.t, handed)
		until(s.t, time.Second, "goes on", active(s.host.m))
		require.Len(s.t, s.log, lives)
		return
	}
	require.Equal(s.t, 1, handed)
	i := slices.IndexFunc(s.all, func(x *waiter) bool { return x.id == s.c.record("singleton/x").Owner.ID })
	require.True(s.t, i >= 0 && (!named || s.all[i] == x))
	until(s.t, time.Second, "hosts", active(s.all[i].m))
	require.Equal(s.t, fmt.Sprintf("started with %d on %s", s.jobs, s.all[i].id), s.log[lives])
	s.host, s.all[i] = s.all[i], s.host
	for _, x := range s.all {
		x.heard = time.Now()
	}
	s.died, s.haunt = nil, false
}

// move stops the host, and has another one begin.
func (s *candidateSim) move() {
	s.send(s.host)
	if s.r.IntN(3) == 0 {
		s.appear()
		time.Sleep(simulate.Spread(s.r.Float64(), time.Millisecond, 5*time.Second)) // it may be asked just now
	}
	time.Sleep(10 * time.Millisecond)
	known := slices.ContainsFunc(s.all, func(x *waiter) bool { return time.Since(x.heard) > 100*time.Millisecond })
	recently := 0 // of these the host may ask some first
	for _, at := range s.died {
		if time.Since(at) < time.Minute {
			recently++
		}
	}
	if s.haunt { // it is asked first, and may be silent
		recently++
	}
	old, state := s.host, s.jobs
	events, began, lives := old.events(), time.Now(), len(s.log)
	err := old.m.Stop(s.t.Context())
	took := time.Since(began)
	s.logf("%s has stopped: %v, after %v; %d wait, %d died lately", old.id, err, took, len(s.all), recently)
	require.NoError(s.t, err)
	handed, cold := len(events.of(singleton.HandedOver)), len(events.of(singleton.ColdStart))
	require.Equal(s.t, 1, handed+cold, "a state is handed over, or it is told that it is not")
	if len(s.all) == 0 {
		s.all = append(s.all, s.join())
	}
	i := -1
	until(s.t, 3*ttl, "another hosts", func() bool {
		i = slices.IndexFunc(s.all, func(x *waiter) bool { return active(x.m)() })
		return i >= 0
	})
	s.host = s.all[i]
	s.all = slices.Delete(s.all, i, i+1)
	if known && recently < 5 {
		require.Equal(s.t, 1, handed, "the state was given up, though a node waited that could be reached")
		require.Equal(s.t, fmt.Sprintf("started with %d on %s", state, s.host.id), s.log[lives])
		require.Less(s.t, took, time.Duration(recently)*time.Second+2*time.Second)
	}
	for _, x := range s.all { // they hear of the new host
		x.heard = time.Now()
	}
	s.died, s.haunt = nil, false // the new host has not heard of these
}
