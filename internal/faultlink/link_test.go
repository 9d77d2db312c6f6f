//go:build unix

package faultlink

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must happen; silence, how long it
// listens for what must not.
const (
	patience = 10 * time.Second
	silence  = 100 * time.Millisecond
)

// echo is a proxied server that sends back what it gets, and reports it.
type echo struct {
	link  *Link
	proxy *Proxy
	got   chan []byte
	conns atomic.Int32 // accepted so far
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{link: New(), got: make(chan []byte, 1000)}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.conns.Add(1)
			go func() {
				defer conn.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buf)
					if n > 0 {
						e.got <- bytes.Clone(buf[:n])
						if _, err := conn.Write(buf[:n]); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	e.proxy, err = Listen(
		func(net.Conn) *Link { return e.link },
		func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", ln.Addr().String())
		})
	require.NoError(t, err)
	t.Cleanup(func() { e.proxy.Close(); ln.Close() })
	return e
}

func (e *echo) connect(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", e.proxy.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	_, err := conn.Write([]byte(s))
	require.NoError(t, err)
}

func expect(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, len(s))
	_, err := io.ReadFull(conn, buf)
	require.NoError(t, err)
	require.Equal(t, s, string(buf))
}

func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(silence)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func expectReset(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := io.Copy(io.Discard, conn)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// expectNoConnection: one that is made is reset at once, or while it is made.
func expectNoConnection(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET)
		return
	}
	defer conn.Close()
	expectReset(t, conn)
}

func TestCutHoldsEverythingBackUntilHeal(t *testing.T) {
	e := newEcho(t)
	old := e.connect(t)
	send(t, old, "before")
	expect(t, old, "before")
	require.Equal(t, "before", string(<-e.got))

	e.link.Cut()
	send(t, old, "during")
	fresh := e.connect(t) // can be made, like everything else, and nothing comes of it
	send(t, fresh, "fresh")
	gone := e.connect(t)
	send(t, gone, "gone")
	require.NoError(t, gone.Close()) // its sender gives up
	expectSilence(t, old)
	expectSilence(t, fresh)
	require.Empty(t, e.got, "arrived through a cut link")
	require.Equal(t, int32(1), e.conns.Load(), "connected through a cut link")

	e.link.Heal()
	expect(t, old, "during")
	expect(t, fresh, "fresh")
	late := map[string]bool{}
	for range 3 {
		late[string(<-e.got)] = true
	}
	require.Equal(t, map[string]bool{"during": true, "fresh": true, "gone": true}, late)
}

func TestCutRepliesLetsRequestsThrough(t *testing.T) {
	e := newEcho(t)
	conn := e.connect(t)
	e.link.CutReplies()
	send(t, conn, "done?")
	require.Equal(t, "done?", string(<-e.got))
	expectSilence(t, conn)
	e.link.Heal()
	expect(t, conn, "done?")
}

func TestRefuseResetsOldAndNewConnections(t *testing.T) {
	e := newEcho(t)
	idle, busy := e.connect(t), e.connect(t)
	send(t, idle, "x")
	expect(t, idle, "x")
	e.link.CutReplies()
	send(t, busy, "held back")
	e.link.Refuse()
	expectReset(t, idle)
	expectReset(t, busy)
	expectNoConnection(t, e.proxy)
	e.link.Heal()
	conn := e.connect(t)
	send(t, conn, "again")
	expect(t, conn, "again")
}

func TestDelayIsPerWayAndKeepsOrderAndThroughput(t *testing.T) {
	e := newEcho(t)
	conn := e.connect(t)
	send(t, conn, "x")
	expect(t, conn, "x")
	const d = 100 * time.Millisecond
	e.link.Delay(d)
	began := time.Now()
	const rounds = 20
	for i := range rounds {
		send(t, conn, string(rune('a'+i)))
		time.Sleep(2 * time.Millisecond) // so that they travel as chunks of their own
	}
	expect(t, conn, "abcdefghijklmnopqrst")
	took := time.Since(began)
	require.GreaterOrEqual(t, took, 2*d)
	require.Less(t, took, rounds*d, "one delay after another")

	e.link.Delay(time.Hour)
	send(t, conn, "late")
	expectSilence(t, conn)
	e.link.Heal() // what is under way arrives at once
	expect(t, conn, "late")
}

// What was written before an orderly end arrives, however slow the reader.
func TestAnOrderlyEndLosesNothing(t *testing.T) {
	e := newEcho(t)
	conn := e.connect(t)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<15) // 512 KiB: more than is sent unread, less than is buffered
	_, err := conn.Write(body)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	require.Eventually(t, func() bool { // the proxy is done with it
		w := e.link.requests
		w.mu.Lock()
		defer w.mu.Unlock()
		return e.conns.Load() == 1 && len(w.over) == 0
	}, patience, time.Millisecond)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	back, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, back))
}

func TestConnectionToNobodyIsReset(t *testing.T) {
	link := New()
	p, err := Listen(
		func(net.Conn) *Link { return link },
		func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
	require.NoError(t, err)
	defer p.Close()
	expectNoConnection(t, p)
}

func TestClosingAProxyEndsItsConnections(t *testing.T) {
	e := newEcho(t)
	cut := e.connect(t)
	send(t, cut, "x")
	expect(t, cut, "x")
	e.link.Cut()
	send(t, cut, "held back")
	e.proxy.Close()
	expectReset(t, cut)
	_, err := net.Dial("tcp", e.proxy.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestShapesBoundTheQueue(t *testing.T) {
	require.Equal(t, buffered, Shape{Rate: 1000}.limit())
	require.Equal(t, most, Shape{Delay: time.Second}.limit())
	require.Equal(t, buffered+15_000, Shape{Delay: 50 * time.Millisecond, Jitter: 250 * time.Millisecond, Rate: 50_000}.limit())
	require.Equal(t, 1000, Shape{Rate: 50_000}.piece())
	require.Equal(t, mostPiece, Shape{}.piece())
}
