//go:build linux && !race

package nodes

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	node, err := startProcess(nil, settings{Journal: "/nowhere", Host: "127.0.0.1"})
	require.NoError(t, err)
	<-node.Done()
	s := &slot{proc: node}
	require.ErrorContains(t, s.check(), "node-0.0 ended by itself: exit status 2")
}

func TestANodeOfAStoreThatIsNotThere(t *testing.T) {
	n := &node{settings: settings{Store: "x", Host: "127.0.0.1", Names: names{Singletons: 1, Shards: 1, Each: 1}}}
	path := filepath.Join(t.TempDir(), "journal")
	j, err := machine.MakeJournal[entry](path, 10)
	require.NoError(t, err)
	defer j.Close()
	n.Journal = path
	err = scene.Try(func() { n.open(nil) })
	require.ErrorContains(t, err, `there is no store "x"`)
	n.remote.Shutdown(true)
	require.NoError(t, n.journal.Close())
}
