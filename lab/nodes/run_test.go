//go:build linux && !race

package nodes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// What a network cuts does not arrive, and arrives when it is open again.
func TestNetworksCutAndHeal(t *testing.T) {
	open, cut, late := machine.Shape{}, machine.Shape{Stall: true}, machine.Shape{Delay: 500 * time.Millisecond}
	for _, wires := range []wiring{newNetwork, newProxies} {
		server, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
		require.NoError(t, err)
		defer server.Close()
		n := wires([]string{"unix://" + server.Addr().String()}, 2)
		t.Run(n.about, func(t *testing.T) {
			defer n.close()
			from, to := n.seats[0], n.seats[1]
			address := fmt.Sprintf("%s:%d", to.host, to.port)
			dial := cmp.Or(from.dials[address], address)
			var ln net.Listener
			var a, b net.Conn
			require.NoError(t, to.place.Do(func() (err error) { ln, err = net.Listen("tcp", address); return err }))
			defer ln.Close()
			require.NoError(t, from.place.Do(func() (err error) { a, err = net.Dial("tcp", dial); return err }))
			defer a.Close()
			b, err = ln.Accept()
			require.NoError(t, err)
			defer b.Close()

			sends := func(from, to net.Conn, text string) {
				_, err := from.Write([]byte(text))
				require.NoError(t, err)
				hears(t, to, text)
			}
			silent := func(from, to net.Conn, text string) {
				_, err := from.Write([]byte(text))
				require.NoError(t, err)
				require.NoError(t, to.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
				_, err = to.Read(make([]byte, 10))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			sends(a, b, "one")
			sends(b, a, "two")
			n.link(0, 1, cut)
			silent(a, b, "three")
			n.link(0, 1, open)
			hears(t, b, "three")
			n.link(1, 0, cut)
			silent(b, a, "four")
			n.link(1, 0, open)
			hears(t, a, "four")
			sends(a, b, "five")

			// And the way to the store.
			var x, y net.Conn
			require.NoError(t, from.place.Do(func() (err error) { x, err = net.Dial("tcp", from.endpoints[0]); return err }))
			defer x.Close()
			y, err = server.Accept()
			require.NoError(t, err)
			defer y.Close()
			sends(x, y, "one")
			sends(y, x, "two")
			n.store(0, cut, open)
			silent(x, y, "three")
			n.store(0, open, open)
			hears(t, y, "three")
			n.store(0, open, cut)
			silent(y, x, "four")
			n.store(0, open, open)
			hears(t, x, "four")
			if n.shapes {
				n.store(0, late, late)
				silent(x, y, "late")
				hears(t, y, "late")
				n.store(0, open, open)
				sends(x, y, "five")
			} else {
				require.Error(t, scene.Try(func() { n.store(0, late, late) }))
			}
		})
	}
}

func hears(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 10)
	n, err := conn.Read(buf)
	require.NoError(t, err)
	require.Equal(t, text, string(buf[:n]))
}

// A node that can't begin is noticed.
func TestANodeThatEndsIsNoticed(t *testing.T) {
	node := startProcess(nil, settings{Journal: "/nowhere", Host: "127.0.0.1"})
	<-node.Done()
	s := &slot{proc: node}
	require.ErrorContains(t, s.check(), "node-0.0 ended by itself: exit status 2")
}

func TestANodeOfAStoreThatIsNotThere(t *testing.T) {
	n := &node{settings: settings{Store: "x", Host: "127.0.0.1", Names: names{Singletons: 1, Shards: 1, Each: 1}}}
	path := filepath.Join(t.TempDir(), "journal")
	j := machine.MakeJournal[entry](path, 10)
	defer j.Close()
	n.Journal = path
	err := scene.Try(func() { n.open() })
	require.ErrorContains(t, err, `there is no store "x"`)
	n.remote.Shutdown(true)
	require.NoError(t, n.journal.Close())
}

// The short form, with processes of this test binary, over every store, and one that
// can't be watched. protoactor's remote sets gRPC's logger when it
// starts, while clients read it: hence the build constraint.
func TestShortTorture(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms kills and stops nodes")
	for _, s := range []Store{overEtcd, overPostgres, overSQLite, overRedis, unwatched} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			playShort(t, "torture", &scene.Run{Short: true, Seed: 3, Store: s.Name})
		})
	}
}

// playShort plays a scenario. That something took long is the machine's.
func playShort(t *testing.T, name string, r *scene.Run) {
	var out bytes.Buffer
	r.Out = &out
	for _, s := range Scenarios() {
		if s.Name != name {
			continue
		}
		err := s.Play(t.Context(), r)
		for _, v := range r.Violations() {
			slow := strings.HasPrefix(v, "late: ") || strings.HasSuffix(v, " s") || strings.Contains(v, "share of the load") || strings.HasPrefix(v, "p99")
			if !slow {
				t.Errorf("%s", v)
			}
		}
		if len(r.Violations()) == 0 {
			require.NoError(t, err, "%s", &out)
		}
		if t.Failed() || testing.Verbose() {
			t.Log(out.String())
		}
		return
	}
	t.Fatalf("there is no scenario %q", name)
}

// Each scenario in its short form: one of each kind in the commit tier, the rest at night.
func TestShortForms(t *testing.T) {
	short := []string{"rolling", "scheduler", "stops"}
	if tier.Nightly() {
		short = []string{"scheduler", "bank", "kills", "stops", "shardkills", "many", "shards", "handovers", "singletonload", "rolling", "restarts", "load", "congestion", "backlog", "slowlink", "reshard"}
	}
	for _, name := range short {
		t.Run(name, func(t *testing.T) {
			etcdtest.Skip(t)
			if !tier.Nightly() {
				t.Parallel() // they wait, mostly
			}
			playShort(t, name, &scene.Run{Short: true})
		})
	}
}

func TestShortRestore(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms plays others")
	etcdtest.Skip(t)
	playShort(t, "restore", &scene.Run{Short: true})
}

// Nodes that leak with every account they start, for real.
func TestLeaksOfNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestLeaksShowInTheSeries judges series")
	etcdtest.Skip(t)
	var out bytes.Buffer
	r := &scene.Run{Seed: 1, Dir: t.TempDir(), Out: &out}
	m := moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 2, Shards: 32, Each: 128}, Follows: true, Idle: 2 * time.Second,
		MaxActive: 260, Leaks: "goroutines, heap"}, asks: 400, length: 20 * time.Second, every: 2500 * time.Millisecond, deck: []move{drain, handOver}, grow: true}
	require.NoError(t, scene.Try(func() { m.play(t.Context(), r) }), "%s", &out)
	all := strings.Join(r.Violations(), "; ")
	require.Contains(t, all, "more goroutines")
	require.Contains(t, all, "more MiB of heap")
	require.NotContains(t, all, "open files")
}

// brokenNodes are nodes that trust a slow clock, and write without a condition: what they do when they
// are cut off from the store must be found. A stale write must meet a newer one for the journal to
// show it.
func brokenNodes(ctx context.Context, r *scene.Run) map[string]int {
	t := newTorture(ctx, r, options{length: time.Second, nodes: 2, ttl: 2 * time.Second, rate: 100, broken: true, wires: newNetwork})
	defer t.end()
	t.begin(ctx)
	cut := fault{kind: cutRequests, Shape: machine.Shape{Stall: true}, For: 6 * time.Second}
	second := cut
	second.Node, second.After = 1, 7*time.Second
	t.weather(ctx, 1, []fault{cut, second})
	found := map[string]int{}
	for _, v := range judge(t.bring(ctx)).violations {
		found[v.rule]++
	}
	return found
}

func TestBrokenNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	for _, s := range []Store{overEtcd, overPostgres} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			var out bytes.Buffer
			found := map[string]int{}
			for try := 0; try < 3 && (found[ruleI1] == 0 || found[ruleI3] == 0 || found[ruleFence] == 0); try++ {
				require.NoError(t, scene.Try(func() {
					found = brokenNodes(t.Context(), &scene.Run{Seed: 1, Store: s.Name, Dir: t.TempDir(), Out: &out})
				}), "%s", &out)
			}
			for _, rule := range []string{ruleI1, ruleI3, ruleFence} {
				require.NotZero(t, found[rule], "%s: %s", rule, &out)
			}
		})
	}
}
