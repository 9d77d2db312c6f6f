//go:build linux

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// Stores are the kinds of store that nodes can run over; tests add theirs.
var Stores = []Store{overEtcd, overPostgres, overSQLite}

// Child is the whole of a process that a scenario started; in any other it does nothing. A program
// that plays scenarios calls it first.
func Child() {
	machine.Burn()
	arg := os.Getenv(nodeEnv)
	if arg == "" {
		return
	}
	if err := runNode(arg); err != nil {
		fmt.Fprintln(os.Stderr, "lab node:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// Scenarios returns them all.
func Scenarios() []scene.Scenario {
	return []scene.Scenario{
		{Name: "torture", About: "storms of faults from a seed, on nodes, servers and links, with calms between; I1 to I7 and the fenced journal hold", Do: tortureScenario(newNetwork)},
		{Name: "torture-proxies", About: "torture over links that are also delayed, throttled and stalled", Do: tortureScenario(newProxies)},
		{Name: "kills", About: "the node that hosts a singleton is killed, again and again; every survivor has an answer in time",
			Do: deaths{nodes: 3, names: names{Singletons: 1}, ttl: 2 * time.Second, kills: 20, target: host, back: time.Second}.sized(20, 1, 0)},
		{Name: "stops", About: "nodes that host singletons are killed, or stopped (SIGSTOP) for 3 TTLs, and go on; the others take over in time, and no sooner than the TTL allows",
			Do: deaths{nodes: 4, names: names{Singletons: 10}, ttl: 2 * time.Second, target: busiest, back: 4 * time.Second, stops: true}.sized(40, 2, 0)},
		{Name: "shardkills", About: "a node that hosts shards is killed under load, again and again; all shards answer every survivor in time",
			Do: deaths{nodes: 4, names: names{Shards: 256, Each: 2}, ttl: 2 * time.Second, asks: 2000, kills: 10, back: 2 * time.Second}.sized(10, 1, 32)},
		{Name: "many", About: "5000 singletons, idle, and the death of a node: what they cost, and when all answer again",
			Do: deaths{nodes: 3, names: names{Singletons: 5000}, ttl: 10 * time.Second, kills: 1, target: busiest, back: 5 * time.Second,
				start: 15 * time.Second, idle: &needs{heap: 4 + 5000*16./1024, goroutines: 60 + 25, requests: 50}}.sized(1, 1, 60)},
		{Name: "shards", About: "10 000 shards: what they cost while idle; the coordinator is killed, leaves in order, and a node joins",
			Do: deaths{nodes: 4, names: names{Shards: 10_000, Each: 1}, ttl: 5 * time.Second, kills: 1, target: coordinator, back: 3 * time.Second,
				start: assignBound, idle: &needs{heap: 8 + 10_000*4./1024, requests: 50}, then: succession}.sized(1, 1, 200)},
		{Name: "handovers", About: "a singleton goes round three nodes under 10 000 letters a second; nothing lost, doubled or out of order, and a short silence",
			Do: moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1}, Follows: true, Buffer: 10_000}, rate: 10_000, size: 50,
				every: 400 * time.Millisecond, deck: []move{handOver}, gap: 20 * time.Millisecond}.sized(4, 0.06)},
		{Name: "singletonload", About: "a singleton moves every 2 s under 5000 letters a second, for a while on a busy machine; nothing lost uncounted, and bounded heap",
			Do: moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1}, Follows: true, Size: 100}, rate: 5000,
				length: 5 * time.Minute, every: 2 * time.Second, deck: []move{handOver}, busy: 30 * time.Second, heap: heapMost}.sized(0, 0.1)},
		{Name: "rolling", About: "all nodes that host shards are restarted under 5000 asks a second; all answered, once, in order",
			Do: moves{nodes: 4, clients: 1, set: settings{TTL: 10 * time.Second, Names: names{Shards: 256, Each: 4}}, asks: 5000, size: 4,
				every: 2 * time.Second, deck: []move{restart}}.sized(2, 0.08)},
		{Name: "restarts", About: "5 nodes are restarted under their addresses, 20 by SIGTERM and 20 by kill -9 in turn, under 2000 asks a second and letters between all; only what is under way at a kill is lost, and every ask ends",
			Do: moves{nodes: 5, set: settings{TTL: 5 * time.Second, Names: names{Singletons: 4, Shards: 64, Each: 2}}, rate: 1000, asks: 2000, within: 30 * time.Second,
				size: 20, length: 6 * time.Minute, every: 100 * time.Millisecond, deck: []move{inTurn}, away: 200 * time.Millisecond}.sized(1, 0.1)},
		{Name: "load", About: "accounts are asked, stopped for idleness and for room, and started again, while all moves, for 30 minutes; nothing lost, nothing grows",
			Do: moves{nodes: 4, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 2, Shards: 64, Each: 128}, Follows: true, Idle: 2 * time.Second,
				MaxActive: 260}, asks: 800, length: 30 * time.Minute, every: 20 * time.Second, deck: []move{drain, drain, drain, handOver, handOver, restart}, grow: true}.sized(0, 0.5)},
		{Name: "scheduler", About: "jobs and ticks of a singleton go into a fenced ledger; its host is killed, and the next stopped, in the middle of a job; each job is done once",
			Do: books{hosts: 3, names: names{Singletons: 1}, clients: 2, target: host}.play},
		{Name: "bank", About: "transfers between accounts go into a fenced ledger; a node joins, one leaves, one is killed and one stopped in the middle of a transfer; no money is lost",
			Do: books{hosts: 4, names: names{Shards: 64, Each: 1}, joins: true, clients: 4, target: coordinator}.play},
		{Name: "congestion", About: "shards move while all links are slow, and while one is stalled; what goes over them, what is lost uncounted, how soon it heals", Do: congestion},
		{Name: "backlog", About: "a node is stopped over a mailbox of up to 1 000 000 letters; how long until the last is handled at the other, and how that grows", Do: backlog},
		{Name: "slowlink", About: "accounts with state move over links that carry less than is sent; what was handled and what was counted make up what was sent", Do: slowLink},
		{Name: "reshard", About: "the number of shards changes, and whoever moves what is remembered is killed; every account runs again, once, in its shard", Do: reshard},
		{Name: "restore", About: "etcd's data is lost, put back to an older copy, and put back with its revision beyond; Health says so, and tokens never go back", Do: restore},
	}
}

// Beside is a scenario with another version of this program: every other life of each node is one of it.
func Beside(former string) scene.Scenario {
	return scene.Scenario{Name: "beside", About: "nodes of two versions of the library; singletons and shards with state move between them under load, and nodes change their version",
		Do: moves{nodes: 4, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1, Shards: 16, Each: 2}, Follows: true, State: 1000, Former: former},
			rate: 200, asks: 200, size: 9, every: 2 * time.Second, deck: []move{handOver, drain, restart}}.play}
}

// sized is the scenario; short, it has so many kills, and names if that is not 0.
func (d deaths) sized(kills, short, names int) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		d := d
		d.kills = kills
		if r.Short {
			d.kills, d.asks, d.ttl = short, d.asks/8, 2*time.Second
			if names > 0 {
				d.names.Singletons, d.names.Shards = min(d.names.Singletons, names), min(d.names.Shards, names)
			}
		}
		d.play(ctx, r)
	}
}

// sized is the scenario, for as long as the run says; short, it has so many moves, if that is not 0, and
// that share of the load.
func (m moves) sized(short int, share float64) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		m := m
		if r.Short {
			m.rate, m.asks, m.size = m.rate*share, m.asks*share, short
			m.nodes, m.set.Names.Shards = min(m.nodes, 3), min(m.set.Names.Shards, 32)
			if short == 0 {
				m.length, m.every, m.busy = 20*time.Second, 2500*time.Millisecond, min(m.busy, 3*time.Second)
			}
		}
		m.length = cmp.Or(r.For, m.length)
		m.play(ctx, r)
	}
}
