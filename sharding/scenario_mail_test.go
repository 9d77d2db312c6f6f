package sharding_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// These are the scenarios of mail, by number, and what they share. Number 7, of state,
// is in state_move_test.go.

// crew is two hosts, a and b, and s, which hosts nothing. Shards are where they are
// told to be.
type crew struct {
	*cluster
	a, b, s *node
	all     []*node
	host    atomic.Pointer[string]
	voices  []*voice

	mu   sync.Mutex
	dead map[job]int // what went to the dead letters of any node
}

const crewShards = 4

// crew starts the nodes; do is what an entity does besides noting what it handles.
func (c *cluster) crew(do func(n *node, ctx actor.Context), opts ...sharding.Option) *crew {
	c.t.Helper()
	x := &crew{cluster: c, dead: map[job]int{}}
	x.all = c.nodes("a", "b", "s")
	x.a, x.b, x.s = x.all[0], x.all[1], x.all[2]
	first := "a"
	x.host.Store(&first)
	opts = append([]sharding.Option{sharding.WithSettle(0), sharding.WithStrategy(placement.StrategyFunc(x.target))}, opts...)
	for _, n := range x.all {
		n.system.EventStream.Subscribe(x.bury)
		typ := sharding.Type{Name: "account", Shards: crewShards}
		if n != x.s {
			typ.Props = actor.PropsFromProducer(func() actor.Actor { return &doer{account{n: n}, do} })
		}
		n.startType(typ, opts...)
	}
	x.awaitHost("a")
	return x
}

// target has nodes that leave replaced by any other.
func (x *crew) target(v placement.View) []string {
	target := make([]string, len(v.Owners))
	for i := range target {
		for _, h := range v.Hosts {
			if !h.Leaving && (target[i] == "" || h.ID == hostOf(i, *x.host.Load())) {
				target[i] = h.Incarnation
			}
		}
	}
	return target
}

// hostOf is who is to host a shard: "a,b" deals shards out.
func hostOf(shard int, hosts string) string {
	ids := strings.Split(hosts, ",")
	return ids[shard%len(ids)]
}

// move begins to move the shards.
func (x *crew) move(hosts string) {
	x.host.Store(&hosts)
	for _, n := range []*node{x.a, x.b} {
		n.region.Reconsider()
	}
}

// awaitHost waits until the shards are where they are to be, as s sees it.
func (x *crew) awaitHost(hosts string) {
	x.t.Helper()
	for range 400_000 {
		ok := true
		for i, o := range owners(x.s) {
			ok = ok && o == hostOf(i, hosts)
		}
		if ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
	require.Fail(x.t, "the shards do not move", "to %s: %v", hosts, owners(x.s))
}

func (x *crew) bury(e any) {
	d, ok := e.(*actor.DeadLetterEvent)
	if !ok {
		return
	}
	if j, ok := jobOf(d.Message); ok {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.dead[j]++
	}
}

// wire is how many messages and bytes all links took up.
func (x *crew) wire() (messages, bytes uint64) {
	for _, from := range x.all {
		for _, to := range x.all {
			m, b := x.net.Wire(from.id+":1", to.id+":1")
			messages, bytes = messages+m, bytes+b
		}
	}
	return messages, bytes
}

// doer is an account that does something besides.
type doer struct {
	account
	do func(n *node, ctx actor.Context)
}

func (d *doer) Receive(ctx actor.Context) {
	d.account.Receive(ctx)
	if d.do != nil {
		d.do(d.n, ctx)
	}
}

// slowAt has entities take d for each job of a number.
func slowAt(number int, d time.Duration) func(*node, actor.Context) {
	return func(_ *node, ctx actor.Context) {
		if j, ok := jobOf(ctx.Message()); ok && j.Number == number {
			time.Sleep(d)
		}
	}
}

// voice sends numbered jobs from a node to an entity.
type voice struct {
	x        *crew
	n        *node
	id, name string
	sent     int
}

// voice returns one whose jobs take some bytes more than they would.
func (x *crew) voice(n *node, id string, padding int) *voice {
	v := &voice{x: x, n: n, id: id, name: fmt.Sprintf("%s to %s%s", n.id, id, strings.Repeat("x", padding))}
	x.voices = append(x.voices, v)
	return v
}

// say sends the next; that takes no time.
func (v *voice) say() {
	v.sent++
	began := time.Now()
	require.NoError(v.x.t, v.n.region.Tell(v.id, formOf(job{v.name, v.sent})))
	require.Zero(v.x.t, time.Since(began), "Tell blocks")
}

// talk has everybody send one message every so often, for some time.
func (x *crew) talk(every, d time.Duration) {
	for range d / every {
		for _, v := range x.voices {
			v.say()
		}
		time.Sleep(every)
	}
}

// once checks that everything that was sent was handled once.
func (x *crew) once() {
	x.t.Helper()
	require.Empty(x.t, x.dead)
	for _, v := range x.voices {
		got := x.log.of(v.name, v.id)
		slices.Sort(got)
		v.are(got)
	}
}

// inOrder checks that everything that was sent was handled once, in order.
func (x *crew) inOrder() {
	x.t.Helper()
	require.Empty(x.t, x.dead)
	for _, v := range x.voices {
		v.are(x.log.of(v.name, v.id))
	}
	x.log.check()
	x.whole(x.all...)
}

// are checks that got is 1, 2, 3 and so on to the last that was sent.
func (v *voice) are(got []int) {
	v.x.t.Helper()
	for i, number := range got {
		if number != i+1 {
			require.Equal(v.x.t, i+1, number, "%.20s: place %d of %d, %d sent", v.name, i+1, len(got), v.sent)
		}
	}
	require.Equal(v.x.t, v.sent, len(got), "%.20s", v.name)
}

// 1: a planned move while a link hangs for longer than any timer of ours and shorter
// than the transport's.
func TestScenarioMail1APlannedMoveWhileALinkHangs(t *testing.T) {
	for _, link := range [][2]string{{"a:1", "b:1"}, {"s:1", "a:1"}} {
		for name, moved := range map[string]bool{"before": false, "after": true} {
			if tier.Racing && moved != (link[0] == "s:1") {
				continue // each link and each moment once
			}
			t.Run(fmt.Sprintf("%s to %s %s", link[0], link[1], name), func(t *testing.T) {
				run := func(hangs bool) (bytes uint64) {
					bubble(t, func(c *cluster) {
						// A next host waits for word of the former before it opens.
						x := c.crew(slowAt(1, 2*time.Second), sharding.WithBuffer(4000, 100_000, hosting.DropNewest))
						for _, n := range x.all {
							for shard := range 2 {
								x.voice(n, idOf(shard, crewShards), 100)
							}
						}
						for _, from := range x.all {
							for _, to := range x.all {
								c.net.SetDelay(from.id+":1", to.id+":1", 5*time.Millisecond)
							}
						}
						x.talk(10*time.Millisecond, time.Second)
						x.talk(time.Microsecond, 300*time.Microsecond)
						if hangs && !moved {
							c.net.Stall(link[0], link[1])
						}
						x.move("b")
						if moved {
							x.awaitHost("b")
							for x.a.region.Info().Relayed == 0 { // what waited at a is under way
								time.Sleep(time.Millisecond)
							}
						}
						if hangs {
							c.net.Stall(link[0], link[1])
						}
						x.talk(10*time.Millisecond, 8*time.Second)
						c.net.Unstall(link[0], link[1])
						x.awaitHost("b")
						x.talk(10*time.Millisecond, 2*time.Second)
						time.Sleep(20 * time.Second)
						x.once()
						_, bytes = x.wire()
					})
					return bytes
				}
				calm, hung := run(false), run(true)
				t.Logf("bytes: %d, with the stall %d", calm, hung)
				require.LessOrEqual(t, hung, calm+calm/2+16<<10)
			})
		}
	}
}
