//go:build linux

package machine

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ports are free ones.
func ports(t *testing.T, n int) (all []int) {
	for range n {
		all = append(all, FreePort())
	}
	return all
}

// eachLinks runs f between two nodes.
func eachLinks(t *testing.T, f func(t *testing.T, l *Links, dial func() net.Conn, ln net.Listener)) {
	all := ports(t, 2)
	l := NewLinks(all)
	defer l.Close()
	address := fmt.Sprintf("127.0.0.1:%d", all[1])
	ln, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer ln.Close()
	f(t, l, func() net.Conn {
		conn, err := net.Dial("tcp", l.Dials(0)[address])
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}, ln)
}

func accept(t *testing.T, ln net.Listener) net.Conn {
	require.NoError(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(20*time.Second)))
	conn, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, text string) {
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
}

func hears(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, len(text))
	_, err := io.ReadFull(conn, buf)
	require.NoError(t, err)
	require.Equal(t, text, string(buf))
}

func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err := conn.Read(make([]byte, 10))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestAStalledLinkHoldsEverythingAndClosesNothing(t *testing.T) {
	eachLinks(t, func(t *testing.T, l *Links, dial func() net.Conn, ln net.Listener) {
		a := dial()
		b := accept(t, ln)
		write(t, a, "one")
		hears(t, b, "one")
		l.Link(0, 1).Set(Shape{Stall: true})
		write(t, a, "two")
		silent(t, b)
		write(t, b, "back")
		hears(t, a, "back")
		later := dial() // it is not made before it can be
		l.Link(0, 1).Heal()
		hears(t, b, "two")
		c := accept(t, ln)
		write(t, later, "three")
		hears(t, c, "three")
		require.EqualValues(t, len("onetwothree"), l.Link(0, 1).Bytes())
		require.EqualValues(t, len("back"), l.Link(1, 0).Bytes())
		require.EqualValues(t, len("onetwothreeback"), l.Bytes())
	})
}

func TestARateHoldsForAllAndASlowLinkHoldsItsSenderUp(t *testing.T) {
	eachLinks(t, func(t *testing.T, l *Links, dial func() net.Conn, ln net.Listener) {
		a := dial()
		b := accept(t, ln)
		const rate, size = 200_000, 100_000
		l.Link(0, 1).Set(Shape{Rate: rate})
		began := time.Now()
		go func() { _, _ = a.Write(make([]byte, size)) }()
		_, err := io.ReadFull(b, make([]byte, size))
		require.NoError(t, err)
		took := time.Since(began).Seconds()
		require.Greater(t, took, 0.8*size/rate)
		require.Less(t, took, 3.0*size/rate)

		l.Link(0, 1).Set(Shape{Stall: true})
		var wrote atomic.Int64
		go func() {
			for buf := make([]byte, 4<<10); ; {
				n, err := a.Write(buf)
				wrote.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
		require.Eventually(t, func() bool {
			before := wrote.Load()
			time.Sleep(300 * time.Millisecond)
			return before > 0 && wrote.Load() == before
		}, 20*time.Second, time.Millisecond)
		require.Less(t, wrote.Load(), int64(5<<20)) // the sender's own socket is the system's to size
		a.Close()
	})
}

func TestACutResetsConnectionsAndMakesNone(t *testing.T) {
	eachLinks(t, func(t *testing.T, l *Links, dial func() net.Conn, ln net.Listener) {
		a := dial()
		b := accept(t, ln)
		write(t, a, "one")
		hears(t, b, "one")
		l.Link(1, 0).Set(Shape{Cut: true})
		ends := []net.Conn{a, b}
		if conn, err := net.Dial("tcp", l.Dials(0)[l.address(1)]); err == nil { // a reset may come before it is made
			ends = append(ends, conn)
			t.Cleanup(func() { conn.Close() })
		}
		for _, conn := range ends {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			_, err := conn.Read(make([]byte, 1))
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		l.Link(1, 0).Heal()
		a, b = dial(), accept(t, ln)
		write(t, a, "two")
		hears(t, b, "two")
	})
}

// A way leads to a server of TCP, or of the file system, and each direction of it is cut by itself.
func TestWaysToServers(t *testing.T) {
	l := NewLinks(ports(t, 2))
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
			w := l.NewWay(prefix + server.Addr().String())
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
