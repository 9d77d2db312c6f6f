//go:build unix

package servertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultlink"
)

// Group is programs that end together, with the ways to them and a directory. Make it with NewGroup, and
// set Temp before the first program.
type Group struct {
	context.Context // ends with them
	end             context.CancelFunc
	Temp            string // goes with them
	kit             string
	closed          error

	mu       sync.Mutex
	programs []*Program
	ends     []func() error
	proxies  []*faultlink.Proxy
}

// NewGroup begins one. closed is what operations fail with after its end.
func NewGroup(kit string, closed error) *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{Context: ctx, end: cancel, kit: kit, closed: closed}
}

// Bounded is ctx with the end of the group, and with the minute that any one operation may take,
// starting included.
func (g *Group) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, timeout := context.WithTimeout(ctx, time.Minute)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g, func() { cancel(g.closed) })
	return ctx, func() { stop(); cancel(nil); timeout() }
}

// Add makes p one of the group, by the next name that begins so. end is what Close does with it.
func (g *Group) Add(p *Program, name string, tail func(log string) string, end func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Err() != nil {
		return g.closed
	}
	n := 1
	for slices.ContainsFunc(g.programs, func(of *Program) bool { return of.Name == fmt.Sprint(name, n) }) {
		n++
	}
	p.g, p.Kit, p.Name, p.Tail = g, g.kit, fmt.Sprint(name, n), tail
	p.Log = filepath.Join(g.Temp, p.Name+".log")
	g.programs, g.ends = append(g.programs, p), append(g.ends, end)
	return nil
}

// Programs are those that were added.
func (g *Group) Programs() []*Program {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.programs)
}

// Close ends all, the last first. Later calls do nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	if g.Err() != nil {
		g.mu.Unlock()
		return nil
	}
	g.end()
	g.mu.Unlock() // no more programs and proxies come
	var errs []error
	for i, p := range slices.Backward(g.programs) {
		errs = append(errs, p.Do("close", g.ends[i])) // an operation in flight ends with g
	}
	for _, p := range g.proxies {
		p.Close()
	}
	if g.Temp != "" {
		errs = append(errs, os.RemoveAll(g.Temp))
	}
	return errors.Join(errs...)
}

// Route is one way to a server, with the faults of its Link: Cut, CutReplies, Refuse, Delay, Heal. Its
// address stays for the life of the server, whatever is killed and restarted.
type Route struct {
	*faultlink.Link
	proxy *faultlink.Proxy
}

// Addr is host:port.
func (r *Route) Addr() string { return r.proxy.Addr() }

// Route opens a way to what dial leads to, which ends with the group.
func (g *Group) Route(dial func(context.Context) (net.Conn, error)) (*Route, error) {
	link := faultlink.New()
	p, err := g.Proxy(func(net.Conn) *faultlink.Link { return link }, dial)
	return &Route{link, p}, err
}

// Proxy is Route with a choice of links, by connection.
func (g *Group) Proxy(pick func(net.Conn) *faultlink.Link, dial func(context.Context) (net.Conn, error)) (*faultlink.Proxy, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Err() != nil {
		return nil, g.closed
	}
	p, err := faultlink.Listen(pick, dial)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	g.proxies = append(g.proxies, p)
	return p, nil
}

// DialUnix leads to a socket.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// FreePort returns a port of 127.0.0.1 that the system gives to no connection by itself, so that it stays
// free while a server is down.
func FreePort() (port int, err error) {
	for range 100 {
		var ln net.Listener
		port = 20_000 + rand.IntN(10_000)
		if ln, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("no port is free: %w", err)
}

// FindFaketime finds the library that is preloaded to step a program's clock.
func FindFaketime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("libfaketime is not installed (Debian: apt-get install faketime)")
}

// Clock is the file by which the clock of a program is stepped.
type Clock struct {
	Path string
	Give func(path string) error // to the program's user; nil: it is this one's
}

// Set makes the clock differ by so much from the machine's, from now on, for all processes at once.
func (c Clock) Set(offset time.Duration) error {
	fresh := c.Path + ".new"
	err := os.WriteFile(fresh, fmt.Appendf(nil, "%+.6f\n", offset.Seconds()), 0o600)
	if err == nil && c.Give != nil {
		err = c.Give(fresh)
	}
	return errors.Join(err, os.Rename(fresh, c.Path)) // a half of it is seen by no process
}

// Env has a program go by the clock. preload are libraries for it beside libfaketime.
func (c Clock) Env(preload ...string) ([]string, error) {
	library, err := FindFaketime()
	return []string{
		"LD_PRELOAD=" + strings.Join(append([]string{library}, preload...), ":"),
		"FAKETIME_TIMESTAMP_FILE=" + c.Path,
		"FAKETIME_NO_CACHE=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", // by the name in older versions and in newer
	}, err
}
