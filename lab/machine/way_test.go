//go:build linux

package machine

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A way leads to a server of TCP, or of the file system, and each direction of it is cut by itself.
func TestWaysToServers(t *testing.T) {
	l, err := NewLinks(ports(t, 2))
	require.NoError(t, err)
	defer l.Close()
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			at, prefix := "127.0.0.1:0", ""
			if network == "unix" {
				at, prefix = filepath.Join(t.TempDir(), "socket"), "unix://"
			}
			server, err := net.Listen(network, at)
			require.NoError(t, err)
			defer server.Close()
			w, err := l.NewWay(prefix + server.Addr().String())
			require.NoError(t, err)
			a, err := net.Dial("tcp", w.Address)
			require.NoError(t, err)
			defer a.Close()
			b, err := server.Accept()
			require.NoError(t, err)
			defer b.Close()
			says := func(from, to net.Conn, arrives bool) {
				t.Helper()
				_, err := from.Write([]byte("x"))
				require.NoError(t, err)
				wait := 10 * time.Second
				if !arrives {
					wait = 100 * time.Millisecond
				}
				require.NoError(t, to.SetReadDeadline(time.Now().Add(wait)))
				_, err = to.Read(make([]byte, 1))
				require.Equal(t, arrives, err == nil, "%v", err)
			}
			says(a, b, true)
			says(b, a, true)
			w.Requests.Set(Shape{Stall: true})
			says(a, b, false)
			says(b, a, true)
			w.Requests.Heal()
			require.NoError(t, b.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = b.Read(make([]byte, 1))
			require.NoError(t, err, "it waited")
			w.Replies.Set(Shape{Stall: true})
			says(b, a, false)
			says(a, b, true)
			w.Replies.Heal()
			require.NoError(t, a.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = a.Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, a.(*net.TCPConn).CloseWrite())
			require.NoError(t, b.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = b.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "the end travels")
			w.Requests.Set(Shape{Cut: true})
			require.NoError(t, a.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = a.Read(make([]byte, 1))
			require.Error(t, err, "reset")
		})
	}
}
