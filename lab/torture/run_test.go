//go:build linux && !race

package torture

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/test/cluster"
)

// What a network cuts does not arrive, and arrives when it is open again.
func TestNetworksCutAndHeal(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		server, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
		require.NoError(t, err)
		defer server.Close()
		n, err := newNetwork([]string{"unix://" + server.Addr().String()}, 2, proxied, 1)
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

			// And the way to the store.
			var x, y net.Conn
			require.NoError(t, n.place(0).Do(func() (err error) { x, err = net.Dial("tcp", n.endpoints(0)[0]); return err }))
			defer x.Close()
			y, err = server.Accept()
			require.NoError(t, err)
			defer y.Close()
			sends(x, y, "one")
			sends(y, x, "two")
			require.NoError(t, n.store(0, false, true))
			silent(x, y, "three")
			require.NoError(t, n.store(0, true, true))
			hears(t, y, "three")
			require.NoError(t, n.store(0, true, false))
			silent(y, x, "four")
			require.NoError(t, n.store(0, true, true))
			hears(t, x, "four")
			if n.shapes() {
				require.NoError(t, n.shapeStore(0, cluster.Shape{Delay: 500 * time.Millisecond}))
				silent(x, y, "late")
				hears(t, y, "late")
				require.NoError(t, n.shapeStore(0, cluster.Shape{}))
				sends(x, y, "five")
			} else {
				require.Error(t, n.shapeStore(0, cluster.Shape{}))
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
	start := func(context.Context) (Servers, error) { return nil, nil }
	open := func(context.Context, string) (Client, error) { return Client{}, nil }
	a, b := Store{"a", start, open}, Store{"b", start, open}
	s, o, err := parse([]Store{a, b}, nil)
	require.NoError(t, err)
	require.Equal(t, "a", s.Name, "the first one")
	require.Equal(t, options{length: 5 * time.Minute, nodes: 4, ttl: 2 * time.Second, rate: 25, storm: 12 * time.Second, faults: 16}, o)
	s, _, err = parse([]Store{a, b}, []string{"-store", "b", "-nodes", "3"})
	require.NoError(t, err)
	require.Equal(t, "b", s.Name)
	for _, bad := range [][]string{{"-for", "0"}, {"-nodes", "1"}, {"-nodes", "100"}, {"-ttl", "1s"}, {"-rate", "0"}, {"-rate", "1001"},
		{"-storm", "0"}, {"-faults", "0"}} {
		_, _, err := parse([]Store{a}, bad)
		require.ErrorContains(t, err, "must be")
	}
	_, _, err = parse([]Store{a, b}, []string{"-store", "c"})
	require.ErrorContains(t, err, `"c" is not known, of a, b`)
	_, _, err = parse([]Store{a}, []string{"more"})
	require.ErrorContains(t, err, "unexpected")
}

func TestANodeOfAStoreThatIsNotThere(t *testing.T) {
	n := &node{settings: settings{Store: "x", Host: "127.0.0.1", Names: names{Singletons: 1, Shards: 1, Each: 1}}}
	path := filepath.Join(t.TempDir(), "journal")
	j, err := cluster.MakeJournal[entry](path, 10)
	require.NoError(t, err)
	defer j.Close()
	n.Journal = path
	err = n.open(nil)
	require.ErrorContains(t, err, `a store "x" that this program does not have`)
	n.remote.Shutdown(true)
	require.NoError(t, n.journal.Close())
}
