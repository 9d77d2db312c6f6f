package sharding_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/sharding"
)

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
		shape := func(l memnet.Link) {
			for _, from := range x.all {
				for _, to := range x.all {
					c.net.Shape(from.id+":1", to.id+":1", l)
				}
			}
		}
		shape(memnet.Link{Delay: 50 * time.Millisecond, Jitter: 250 * time.Millisecond, Seed: 1, Bandwidth: 20_000})
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
		shape(memnet.Link{Delay: 5 * time.Millisecond})
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
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
		})
	}
}
