package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// These are the scenarios of mail, by number, and what they share. Number 7, of state,
// is in state_test.go.

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
		n.letters(x.bury)
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

func (x *crew) bury(d *actor.DeadLetterEvent) {
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
						c.shape(memnet.Link{Delay: 5 * time.Millisecond}, x.all...)
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

// 8: tokens that are yet to come, from a node that is ahead or lies, take half of what a
// node may hold; idle entities are started meanwhile; and what had them is refused when
// no such ownership came within the lease's TTL.
func TestScenarioMail8TokensYetToCome(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		const shards, total = 16, 4000
		r := n.start(shards, sharding.WithBuffer(1000, total, hosting.DropNewest))
		c.settled(5*time.Second, n)
		asker, refused := n.asker()
		for i := range shards {
			for range 500 {
				n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: fmt.Sprint("shard/g/account/", i), Key: idOf(i, shards),
					Token: math.MaxInt64, Type: "google.protobuf.Empty", Sender: wire.AddressOf(asker), Request: true})
			}
		}
		synctest.Wait()
		require.LessOrEqual(t, r.Info().Waiting, total/2)
		require.Greater(t, r.Info().Waiting, total/4)
		for i := range 100 {
			_, err := ask(n, fmt.Sprint("fresh", i), 1)
			require.NoError(t, err, "an entity that did not run is started")
		}
		time.Sleep(ttl + time.Second)
		in := r.Info()
		require.Zero(t, in.Waiting)
		require.EqualValues(t, shards*500, in.Dropped+in.Undeliverable)
		require.NotZero(t, in.Undeliverable)
		require.EqualValues(t, in.Undeliverable, refused(hosting.ReasonNoSuchToken), "who asked is told")
		require.EqualValues(t, in.Dropped, refused(hosting.ReasonOverflow))
	})
}

// asker is an actor that counts why its messages came to nobody.
func (n *node) asker() (pid *actor.PID, refused func(hosting.Reason) int64) {
	var counts [32]atomic.Int64
	pid = n.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if u, ok := ctx.Message().(hosting.Undeliverable); ok {
			counts[u.Notice().Reason].Add(1)
		}
	}))
	return pid, func(r hosting.Reason) int64 { return counts[r].Load() }
}

// 9: a message that is too large, by itself or with its headers, is refused on the goroutine that
// sends it. Its sender hears of that, though it is a Ref of the same shard.
func TestScenarioMail9DeadLettersOfTheSameShard(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a b", 2)[0]
		away := slices.Index(owners(n), "b")
		ids := idsOf(away, 2, 2)
		self, err := n.region.Ref(ids[1])
		require.NoError(t, err)
		const most = remoting.DefaultMaxMessageSize
		for i, e := range []*actor.MessageEnvelope{
			{Message: wrapperspb.Bytes(make([]byte, most-(65<<10))), Header: map[string]string{"trace": strings.Repeat("h", 70<<10)}},
			{Message: wrapperspb.Bytes(nil), Header: map[string]string{"trace": strings.Repeat("h", most)}},
			{Message: wrapperspb.Bytes(make([]byte, most+1))},
			{Message: wrapperspb.String(strings.Repeat("s", 2*most))},
		} {
			before := n.region.Info().Undeliverable
			e.Sender = self
			require.NoError(t, n.region.Tell(ids[0], e))
			require.Greater(t, n.region.Info().Undeliverable, before, "message %d is refused before it goes to remote", i)
			e.Sender = nil
			_, err := sharding.Ask[done](contextFor(time.Minute), n.region, ids[0], e)
			require.ErrorIs(t, err, hosting.ErrUndeliverable)
			_, err = ask(n, ids[0], i)
			require.NoError(t, err)
		}
	})
}

// idsOf returns ids of a shard.
func idsOf(shard, shards, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprint("y", i); sharding.ShardOf(id, shards) == shard {
			ids = append(ids, id)
		}
	}
	return ids
}

// After Yield, and after a loss with a handler that hangs, the node that gave a shard up
// reaches the entities that another one hosts now.
func TestTheOldHostsCallersReachTheNewHost(t *testing.T) {
	for _, loss := range []bool{false, true} {
		subtest(t, fmt.Sprint("loss=", loss), func(t *testing.T, c *cluster) {
			hold := make(chan struct{})
			defer close(hold)
			ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4,
				Props: actor.PropsFromProducer(func() actor.Actor { return &stubborn{c: c, hold: hold} })},
				sharding.WithStop(nil, time.Second), sharding.WithOverdue(hosting.ReleaseAfterTTL))
			mine := slices.Index(owners(ns[0]), "a")
			ids := idsOf(mine, 4, 2)
			require.NoError(t, ns[0].region.Tell(ids[0], block{}))
			time.Sleep(10 * time.Millisecond)
			if loss {
				ns[0].store.Partition()
				time.Sleep(2 * ttl)
				ns[0].store.Heal()
			} else {
				go func() { _ = ns[0].region.Drain(context.Background()) }()
			}
			time.Sleep(8*time.Second + 3*ttl)
			for i, n := range []*node{ns[1], ns[0]} {
				for k, id := range []string{ids[1], ids[0]} { // b runs the one that hangs at a, too
					got, err := ask(n, id, 2*i+k)
					require.NoError(t, err, n.id)
					require.Equal(t, "b:1", got.Node)
				}
			}
		})
	}
}

// An entity that crashes again and again leaves room for its neighbours.
func TestACrashingEntityLeavesRoomForItsNeighbours(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var got atomic.Int32
		r := n.startType(sharding.Type{Name: "account", Shards: 1, Props: actor.PropsFromProducer(func() actor.Actor {
			time.Sleep(20 * time.Millisecond) // making an entity takes a moment
			return actor.ReceiveFunc(func(ctx actor.Context) {
				self, _ := sharding.Of(ctx)
				if _, ok := ctx.Message().(job); !ok {
					return
				}
				if self.ID() == "bad" {
					panic("a bad entity")
				}
				got.Add(1)
			})
		})})
		c.settled(5*time.Second, n)
		for range 3000 { // more than the buffer of a shard
			require.NoError(t, r.Tell("bad", job{}))
		}
		time.Sleep(5 * time.Second)
		for range 1000 {
			require.NoError(t, r.Tell("bad", job{}))
		}
		require.GreaterOrEqual(t, r.Info().Waiting, 1000)
		before := r.Info().Dropped
		for i := range 10 {
			for k := range 10 {
				require.NoError(t, r.Tell(fmt.Sprint("good", i), job{Number: k}))
			}
		}
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 100, got.Load())
		require.Equal(t, before, r.Info().Dropped)
	})
}

// What is lost with a peer is counted.
func TestMailThatIsLostWithAPeerIsCounted(t *testing.T) {
	for name, end := range map[string]func(x *crew){
		"killed": func(x *crew) { x.b.crash() },
		"hung, then killed": func(x *crew) {
			x.net.Freeze("b:1")
			x.talk(10*time.Millisecond, 3*time.Second)
			x.b.crash()
		},
	} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			x := c.crew(nil)
			x.move("b")
			x.awaitHost("b")
			for _, n := range []*node{x.a, x.s} {
				x.voice(n, idOf(0, crewShards), 0)
				c.net.SetDelay(n.id+":1", "b:1", 100*time.Millisecond)
			}
			x.talk(time.Millisecond, 2*time.Second)
			end(x)
			c.log.died("b")
			x.talk(10*time.Millisecond, 3*time.Second)
			time.Sleep(3 * ttl)
			x.all = []*node{x.a, x.s}
			handled := x.fates()
			lost := x.a.region.Info().Unconfirmed + x.s.region.Info().Unconfirmed
			require.Greater(t, handled, 3000)
			require.GreaterOrEqual(t, lost, int64(100), "what was on its way")
			require.LessOrEqual(t, lost, int64(1000), "what had arrived long before was known to have")
		})
	}
}

// What its asker has given up is not delivered later, from a buffer of this node or of
// another one.
func TestMessagesOfAskersThatGaveUpAreNotDelivered(t *testing.T) {
	giveUp := func(t *testing.T, n *node, id string, number int) {
		t.Helper()
		_, err := sharding.Ask[done](contextFor(time.Second), n.region, id, job{"asks", number}) // in an Envelope, as a Go value
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	subtest(t, "here", func(t *testing.T, c *cluster) {
		s, a := c.node("s"), c.node("a")
		s.startType(sharding.Type{Name: "account", Shards: 4})
		giveUp(t, s, "x", 1)
		require.NoError(t, s.region.Tell("x", job{"tells", 1}))
		a.start(4)
		c.settled(10*time.Second, a)
		time.Sleep(5 * time.Second)
		c.log.complete("tells", "x", 1)
		require.Empty(t, c.log.of("asks", "x"))
		require.EqualValues(t, 1, s.region.Info().Undeliverable)
	})
	subtest(t, "at the former host", func(t *testing.T, c *cluster) {
		x := c.crew(func(n *node, ctx actor.Context) {
			if _, ok := ctx.Message().(retire); ok {
				ctx.Stop(ctx.Self())
			}
			slowAt(7, 5*time.Second)(n, ctx)
		}, sharding.WithStop(func() any { return retire{} }, time.Minute))
		id := idOf(0, crewShards)
		require.NoError(t, x.a.region.Tell(id, job{"first", 7}))
		time.Sleep(100 * time.Millisecond)
		giveUp(t, x.s, id, 1) // in the mailbox
		x.move("b")
		time.Sleep(100 * time.Millisecond)
		giveUp(t, x.s, id, 2) // in the buffer of a, while the entity ends
		require.NoError(t, x.s.region.Tell(id, job{"tells", 1}))
		time.Sleep(20 * time.Second)
		c.log.complete("tells", id, 1)
		require.NotContains(t, c.log.of("asks", id), 2)
		require.NotZero(t, x.a.region.Info().Undeliverable)
	})
}

// beyond is what may be on a link besides the window: probes, markers, and the few
// words of one node to another; and one message that began while there was room.
const beyond = 64 << 10

// bounded checks that no link ever held more than a window.
func (x *crew) bounded() {
	x.t.Helper()
	for _, from := range x.all {
		for _, to := range x.all {
			messages, bytes := x.net.Peak(from.id+":1", to.id+":1")
			require.LessOrEqual(x.t, messages, transport.MaxMessages+1000, "%s to %s", from.id, to.id)
			require.LessOrEqual(x.t, bytes, transport.MaxBytes+beyond, "%s to %s", from.id, to.id)
		}
	}
}

// fates checks that every message was handled at most once, or is one dead letter, and
// that what is neither is accounted for. It returns how many were handled.
func (x *crew) fates() (handled int) {
	x.t.Helper()
	sent, dead, graves, given, unsure := 0, 0, 0, 0, 0
	for _, v := range x.voices {
		sent += v.sent
		seen := map[int]bool{}
		for _, number := range x.log.of(v.name, v.id) {
			require.False(x.t, seen[number], "%.20s: %d was handled twice", v.name, number)
			require.Zero(x.t, x.dead[job{v.name, number}], "%.20s: %d was handled, and is a dead letter", v.name, number)
			seen[number] = true
		}
		handled += len(seen)
		for number := range v.sent {
			n := x.dead[job{v.name, number + 1}]
			require.LessOrEqual(x.t, n, 1, "%.20s: %d is a dead letter", v.name, number+1)
			dead += n
		}
	}
	for _, n := range x.dead { // asks, too
		graves += n
	}
	for _, n := range x.all {
		in := n.region.Info()
		given += int(in.Dropped + in.Undeliverable)
		unsure += int(in.Unconfirmed)
		require.Zero(x.t, in.Waiting, n.id)
	}
	x.t.Logf("sent %d, handled %d, dead letters %d, unconfirmed %d", sent, handled, dead, unsure)
	// What remote refuses is a dead letter, too, and not known to have arrived.
	require.LessOrEqual(x.t, given, graves, "what is given up is a dead letter")
	require.LessOrEqual(x.t, graves, given+unsure, "what is given up is counted")
	require.LessOrEqual(x.t, sent-handled-dead, unsure, "what is lost was counted")
	return handled
}

// 2: moves every second under delay and jitter, at a rate above what the links carry.
func TestScenarioMail2MovesUnderCongestion(t *testing.T) {
	bubble(t, func(c *cluster) {
		x := c.crew(nil, sharding.WithBuffer(200, 10_000, hosting.DropNewest))
		for shard := range crewShards {
			x.voice(x.s, idOf(shard, crewShards), 1000)
		}
		x.talk(10*time.Millisecond, time.Second)
		c.shape(memnet.Link{Delay: 50 * time.Millisecond, Jitter: 250 * time.Millisecond, Seed: 1, Bandwidth: 20_000}, x.all...)
		told, asks := 0, sync.WaitGroup{}
		var mu sync.Mutex
		for second := range 15 {
			x.move([]string{"b", "a"}[second%2])
			for range 2 {
				x.talk(3*time.Millisecond, 500*time.Millisecond)
				for _, v := range x.voices {
					asks.Go(func() {
						began := time.Now()
						_, err := ask(x.s, v.id, 0)
						mu.Lock()
						defer mu.Unlock()
						if errors.Is(err, hosting.ErrUndeliverable) && strings.Contains(err.Error(), "congested") {
							require.Zero(t, time.Since(began), "it waits to be told that there is no room")
							told++
						}
					})
				}
			}
		}
		asks.Wait()
		require.NotZero(t, told, "asks are told of the congestion")
		require.NotZero(t, x.s.region.Info().Dropped)
		x.bounded()
		c.shape(memnet.Link{Delay: 5 * time.Millisecond}, x.all...)
		time.Sleep(3 * time.Second)
		for _, v := range x.voices {
			began := time.Now()
			_, err := ask(x.s, v.id, 0)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		x.bounded()
		moved := int64(0)
		for _, n := range x.all {
			moved += n.region.Info().HandedOff
		}
		require.Greater(t, moved, int64(crewShards))
		require.Greater(t, x.fates(), 4000)
	})
}

// 4: mail that waits for room on a slow link is not given up while what is before it
// arrives, though for longer than WithLinger there is no room for more.
func TestScenarioMail4ARegionThatStopsBehindASlowLink(t *testing.T) {
	const linger = 3 * time.Second
	bubble(t, func(c *cluster) {
		x := c.crew(nil, sharding.WithLinger(linger), sharding.WithBuffer(20_000, 100_000, hosting.DropNewest))
		v := x.voice(x.s, idOf(0, crewShards), 4000)
		v.say()
		time.Sleep(time.Second)
		c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 100_000})
		for range 2000 {
			v.say()
		}
		began := time.Now()
		require.NoError(t, x.s.region.Stop(context.Background()))
		require.Greater(t, time.Since(began), 10*linger)
		time.Sleep(time.Minute)
		require.Zero(t, x.s.region.Info().Dropped)
		x.inOrder()
	})
}

// 3: a peer that accepts and never reads, and one that reads a message a second, take
// up a window, and nobody else's time.
func TestScenarioMail3APeerThatHardlyReads(t *testing.T) {
	for name, reads := range map[string]bool{"never": false, "one a second": true} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			x := c.crew(nil, sharding.WithBuffer(200, 10_000, hosting.DropNewest))
			x.move("a,b")
			x.awaitHost("a,b")
			stuck, free := x.voice(x.s, idOf(0, crewShards), 1000), x.voice(x.s, idOf(1, crewShards), 1000)
			x.talk(10*time.Millisecond, time.Second)
			if reads {
				c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 1200})
			} else {
				c.net.Freeze("a:1")
			}
			for range 1000 {
				for range 8 {
					stuck.say()
				}
				free.say()
				time.Sleep(time.Millisecond)
			}
			_, err := ask(x.s, free.id, 0)
			require.NoError(t, err)
			free.are(c.log.of(free.name, free.id))
			began := time.Now()
			_, err = ask(x.s, stuck.id, 0)
			require.ErrorIs(t, err, hosting.ErrUndeliverable)
			require.ErrorContains(t, err, "congested")
			require.Zero(t, time.Since(began))

			messages, bytes := c.net.Wire("s:1", "a:1")
			for range 600 { // ten minutes
				free.say()
				stuck.say()
				time.Sleep(time.Second)
			}
			x.bounded()
			more, bytesMore := c.net.Wire("s:1", "a:1")
			t.Logf("in ten minutes %d messages, %d bytes", more-messages, bytesMore-bytes)
			require.LessOrEqual(t, more-messages, uint64(600), "probes")
			require.LessOrEqual(t, bytesMore-bytes, uint64(600*100))
			free.are(c.log.of(free.name, free.id))

			c.net.Thaw("a:1")
			c.net.Shape("s:1", "a:1", memnet.Link{})
			time.Sleep(3 * time.Second)
			_, err = ask(x.s, stuck.id, 0)
			require.NoError(t, err, "it reads again")
			time.Sleep(20 * time.Second)
			x.fates()
		})
	}
}

// 4: what others send on and on over the same link does not keep a Region from ending: no
// more than what was before its mail is waited for.
func TestScenarioMail4ARegionThatStopsBehindOthersMail(t *testing.T) {
	const linger = 3 * time.Second
	every := 5 * time.Millisecond // eight times what the link carries; four times under the race detector
	if tier.Racing {
		every *= 2
	}
	bubble(t, func(c *cluster) {
		x := c.crew(nil, sharding.WithLinger(linger))
		mine := x.s.region
		x.a.startType(sharding.Type{Name: "flood", Shards: 256, Props: actor.PropsFromFunc(func(actor.Context) {})}, sharding.WithSettle(0))
		other := x.s.startType(sharding.Type{Name: "flood", Shards: 256}, sharding.WithSettle(0))
		x.s.region = mine
		v := x.voice(x.s, idOf(0, crewShards), 100)
		v.say()
		padding := strings.Repeat("x", 4000)
		require.NoError(t, other.Tell("id", job{padding, 1}))
		time.Sleep(time.Second)
		c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 100_000})
		quit, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for i := 0; ; {
				select {
				case <-quit:
					return
				case <-time.After(every):
					i++
					_ = other.Tell(fmt.Sprint("id", i), job{padding, 1})
				}
			}
		}()
		time.Sleep(20 * time.Second) // the window is full
		for range 20 {
			v.say()
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("%d wait", mine.Info().Waiting)
		began := time.Now()
		err := mine.Stop(contextFor(5 * time.Minute))
		t.Logf("Stop took %v", time.Since(began))
		close(quit)
		<-over
		c.net.Shape("s:1", "a:1", memnet.Link{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
	})
}

// 4: thousands of messages in a mailbox at the moment of a planned stop are taken up by
// the next host, once and in order, with an effort that grows as their number does;
// the node ends when they are, though that takes longer than it lingers.
func TestScenarioMail4ALongMailbox(t *testing.T) {
	const linger = 3 * time.Second
	effort := func(n int) (messages uint64, took time.Duration) {
		bubble(t, func(c *cluster) {
			x := c.crew(slowAt(1, time.Second), sharding.WithLinger(linger))
			id := idOf(0, crewShards)
			here, there := x.voice(x.a, id, 60), x.voice(x.s, id, 60)
			for i := range n / 2 {
				here.say()
				there.say()
				if i%500 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(100 * time.Millisecond)
			require.GreaterOrEqual(t, x.a.region.Info().Waiting, n-3, "what waits in mailboxes counts")
			before, _ := c.net.Wire("a:1", "b:1")
			c.net.Shape("a:1", "b:1", memnet.Link{Delay: 5 * time.Millisecond, Bandwidth: tier.Draws(600_000, 600_000)})
			began := time.Now()
			require.NoError(t, x.a.region.Stop(context.Background()))
			took = time.Since(began)
			synctest.Wait()
			require.Empty(t, x.dead)
			here.are(c.log.of(here.name, id))
			there.are(c.log.of(there.name, id))
			in := x.a.region.Info()
			require.Zero(t, in.Waiting+int(in.Dropped+in.Undeliverable+in.Unordered))
			after, _ := c.net.Wire("a:1", "b:1")
			messages = after - before
		})
		return messages, took
	}
	n := tier.Draws(7_500, 7_500)
	few, _ := effort(n)
	many, took := effort(4 * n)
	require.Greater(t, took, 2*linger)
	t.Logf("messages on the link: %d for %d, %d for %d", few, n, many, 4*n)
	require.Less(t, many, 4*few+200)
	require.Greater(t, many, uint64(4*n-100))
	require.Less(t, many, uint64(4*n*11/10))
}

// 5: the newest message of a sender is never first, wherever older ones of it wait.
func TestScenarioMail5NothingIsOvertaken(t *testing.T) {
	slow := memnet.Link{Delay: 2 * time.Millisecond}
	subtest(t, "in a mailbox that is taken back", func(t *testing.T, c *cluster) {
		x := c.crew(slowAt(1, 2*time.Second))
		id := idOf(0, crewShards)
		c.shape(slow, x.all...)
		for _, n := range x.all {
			x.voice(n, id, 0).say()
		}
		time.Sleep(100 * time.Millisecond)
		x.talk(time.Microsecond, 3*time.Millisecond) // more than the buffer of a shard holds
		x.move("b")
		x.talk(10*time.Millisecond, 3*time.Second)
		x.awaitHost("b")
		time.Sleep(10 * time.Second)
		x.inOrder()
	})
	subtest(t, "in a window that is full", func(t *testing.T, c *cluster) {
		x := c.crew(nil, sharding.WithBuffer(20_000, 100_000, hosting.DropNewest))
		v := x.voice(x.s, idOf(0, crewShards), 2000)
		v.say()
		time.Sleep(time.Second)
		c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 1 << 20})
		for range 4000 {
			v.say()
		}
		require.NotZero(t, x.s.region.Info().Waiting, "the window is full")
		for range tier.Draws(10_000, 10_000) { // as it gets room
			v.say()
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		x.inOrder()
	})
	subtest(t, "in the buffer, until there is a host", func(t *testing.T, c *cluster) {
		x := &crew{cluster: c, dead: map[job]int{}}
		x.all = c.nodes("s", "a")
		x.s, x.a = x.all[0], x.all[1]
		x.s.startType(sharding.Type{Name: "account", Shards: crewShards})
		v := x.voice(x.s, idOf(0, crewShards), 0)
		for range 900 {
			v.say()
		}
		c.shape(slow, x.all...)
		x.a.start(crewShards)
		for range 5000 {
			v.say()
			time.Sleep(10 * time.Millisecond)
			if x.s.region.Info().Waiting == 0 {
				break
			}
		}
		x.talk(100*time.Microsecond, 100*time.Millisecond)
		time.Sleep(5 * time.Second)
		x.inOrder()
	})
}

// retire is how an entity is told to stop that ends when it is ready.
type retire struct{}

// 6: a drain that takes longer than every timer, then a second and a third move before
// the mail of the first has arrived.
func TestScenarioMail6ALongDrainAndMovesBehindIt(t *testing.T) {
	for _, rate := range []time.Duration{100 * time.Millisecond, time.Second} {
		subtest(t, fmt.Sprint(rate), func(t *testing.T, c *cluster) {
			x := c.crew(func(n *node, ctx actor.Context) {
				if _, ok := ctx.Message().(retire); ok {
					ctx.Stop(ctx.Self())
				}
				slowAt(1, 90*time.Second)(n, ctx)
			}, sharding.WithStop(func() any { return retire{} }, 2*time.Minute), sharding.WithBuffer(10_000, 100_000, hosting.DropNewest))
			id := idOf(0, crewShards)
			for _, n := range x.all {
				x.voice(n, id, 100)
			}
			x.voices[2].say() // begins to be handled, for 90 s; the other 1s follow
			time.Sleep(time.Second)
			x.talk(time.Millisecond, 500*time.Millisecond)
			x.move("b")
			x.talk(rate, 5*time.Minute) // each voice's first takes its time
			x.awaitHost("b")
			c.shape(memnet.Link{Delay: 50 * time.Millisecond, Bandwidth: 50_000}, x.all...)
			for _, host := range []string{"a", "b", "a"} {
				x.move(host)
				x.talk(50*time.Millisecond, 500*time.Millisecond)
			}
			x.awaitHost("a")
			time.Sleep(5 * time.Minute)
			x.inOrder()
		})
	}
}
