//go:build linux && !race

package torture

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/test/cluster"
)

func needsEtcd(t *testing.T) {
	etcdtest.Skip(t)
}

// The short form, with processes and etcd. Each node is a process of this test binary;
// protoactor's remote sets gRPC's logger when it starts, while clients read it: hence
// the build constraint.
func TestShortForm(t *testing.T) {
	needsEtcd(t)
	var out bytes.Buffer
	o := options{length: time.Second, seed: 3, nodes: 3, ttl: 2 * time.Second, rate: 20, storm: 4 * time.Second, faults: 5}
	tt, err := newTorture(t.Context(), o, &out)
	require.NoError(t, err)
	err = tt.run(t.Context())
	var j *judgement
	if err == nil {
		j, err = tt.report(t.Context())
	}
	require.NoError(t, errors.Join(err, tt.close()), "%s", &out)
	for _, v := range j.violations {
		// What takes how long is not for a machine that does other things, too.
		require.Contains(t, []string{ruleI7, ruleDeparted}, v.rule, "%s", &out)
	}
}

// Nodes that trust a slow clock, and write without a condition, are found out by what
// they do when they are cut off from etcd.
func TestBrokenNodesAreFoundOut(t *testing.T) {
	needsEtcd(t)
	var found map[string]int
	var told string
	// A stale write must meet a newer one for the journal to show it: if none did,
	// once more.
	for try := 0; try < 3 && (found[ruleI1] == 0 || found[ruleI3] == 0 || found[ruleFence] == 0); try++ {
		found, told = broken(t)
	}
	require.NotZero(t, found[ruleI1], "%v\n%s", found, told)
	require.NotZero(t, found[ruleI3], "%v\n%s", found, told)
	require.NotZero(t, found[ruleFence], "%v\n%s", found, told)
}

// broken tortures such nodes, and counts what is found.
func broken(t *testing.T) (found map[string]int, told string) {
	var out bytes.Buffer
	o := options{length: time.Second, nodes: 2, ttl: 2 * time.Second, rate: 100, broken: true}
	tt, err := newTorture(t.Context(), o, &out)
	require.NoError(t, err)
	defer func() { require.NoError(t, tt.close()) }()
	require.NoError(t, tt.heal(t.Context(), 0), "%s", &out)
	cut := fault{Kind: cutRequests, For: 6 * time.Second}
	slow := fault{Kind: cutRequests, Node: 1, After: 7 * time.Second, For: 6 * time.Second}
	require.NoError(t, tt.weather(t.Context(), 1, []fault{cut, slow}), "%s", &out)
	es, err := tt.evidence()
	require.NoError(t, err)
	rs, hs, err := tt.history(t.Context())
	require.NoError(t, err)
	found = map[string]int{}
	for _, v := range judge(tt.bring(es, nil, nil, rs, hs)).violations {
		found[v.rule]++
	}
	return found, out.String()
}

// What a network cuts does not arrive, and arrives when it is open again.
func TestNetworksCutAndHeal(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		n, err := newNetwork(&etcdtest.Cluster{}, 2, proxied, 1) // of no members
		require.NoError(t, err)
		t.Run(n.String(), func(t *testing.T) {
			defer func() { require.NoError(t, n.close()) }()
			host, port := n.host(1)
			address := fmt.Sprintf("%s:%d", host, port)
			dial := address
			if to := n.dials(0)[address]; to != "" {
				dial = to
			}
			var ln net.Listener
			var a, b net.Conn
			require.NoError(t, n.place(1).Do(func() (err error) { ln, err = net.Listen("tcp", address); return err }))
			defer ln.Close()
			require.NoError(t, n.place(0).Do(func() (err error) { a, err = net.Dial("tcp", dial); return err }))
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
			require.NoError(t, n.link(0, 1, false))
			silent(a, b, "three")
			require.NoError(t, n.link(0, 1, true))
			hears(t, b, "three")
			require.NoError(t, n.link(1, 0, false))
			silent(b, a, "four")
			require.NoError(t, n.link(1, 0, true))
			hears(t, a, "four")
			sends(a, b, "five")
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
	p, err := cluster.NewPlace(false)
	require.NoError(t, err)
	defer p.End()
	node, err := startProcess(p, settings{Journal: "/nowhere", Host: "127.0.0.1"})
	require.NoError(t, err)
	<-node.Done()
	s := &slot{proc: node}
	require.ErrorContains(t, s.check(), "node-0.0 ended by itself: exit status 2")
}

func TestBadFlags(t *testing.T) {
	good := options{length: time.Minute, nodes: 4, ttl: 2 * time.Second, rate: 20, storm: time.Second, faults: 3}
	_, err := check(good)
	require.NoError(t, err)
	for _, broken := range []func(*options){
		func(o *options) { o.length = 0 }, func(o *options) { o.nodes = 1 }, func(o *options) { o.nodes = 100 }, func(o *options) { o.ttl = time.Second },
		func(o *options) { o.rate = 0 }, func(o *options) { o.storm = 0 }, func(o *options) { o.faults = 0 },
	} {
		o := good
		broken(&o)
		_, err := check(o)
		require.ErrorContains(t, err, "must be")
	}
}
