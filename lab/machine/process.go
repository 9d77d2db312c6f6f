//go:build linux

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// ErrNever: a process did not say something in time.
var ErrNever = errors.New("did not come")

// Process is a child of this process, which obeys orders on its standard input, one
// line of JSON each, and tells reports R on its standard output. It dies with this
// process. All it said is known once it is Done. Its methods are safe for concurrent use.
type Process[R any] struct {
	ID string
	*child.Process
	in io.WriteCloser

	mu   sync.Mutex
	said []R
	news chan struct{} // closed and replaced with every report
}

// Start starts this program once more, or another if its path is not empty, with arg as JSON in the
// environment variable env; in the network namespace of a place, unless that is nil.
// It fails by scene.Check.
func Start[R any](at *Place, program, id, env string, arg any) *Process[R] {
	if program == "" {
		program = scene.Must(os.Executable())
	}
	text := scene.Must(json.Marshal(arg))
	cmd := exec.Command(program)
	if at != nil {
		cmd = exec.Command("nsenter", "--net="+at.Path, program) // which becomes the program
	}
	p := &Process[R]{ID: id, news: make(chan struct{})}
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stdout, cmd.Stderr = &reports[R]{Process: p}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.in = scene.Must(cmd.StdinPipe())
	var err error
	p.Process, err = child.Start(cmd)
	scene.Check(err, "starting "+id)
	return p
}

// reports is what a process prints. What is no report ends the reading, and is how the process ended.
type reports[R any] struct {
	*Process[R]
	rest []byte // a line that was cut off by a kill is no report
}

// Write implements io.Writer.
func (p *reports[R]) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		var r R
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("%s said %.100q: %w", p.ID, line, err)
		}
		p.rest = rest
		p.mu.Lock()
		p.said = append(p.said, r)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// Tell gives the process an order.
func (p *Process[R]) Tell(order any) error {
	line, err := json.Marshal(order)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ordering %s to %v: %w", p.ID, order, err)
	}
	return nil
}

// Said returns every report so far, the oldest first.
func (p *Process[R]) Said() []R {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said[:len(p.said):len(p.said)]
}

// Find returns the first report that fits.
func (p *Process[R]) Find(fits func(R) bool) (r R, ok bool) {
	for _, r := range p.Said() {
		if fits(r) {
			return r, true
		}
	}
	return r, false
}

// Await waits for the first report that fits. ErrNever says that it took too long.
func (p *Process[R]) Await(ctx context.Context, within time.Duration, what string, fits func(R) bool) (none R, err error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for seen, ended := 0, false; ; {
		p.mu.Lock()
		said, news := p.said, p.news
		p.mu.Unlock()
		for ; seen < len(said); seen++ {
			if fits(said[seen]) {
				return said[seen], nil
			}
		}
		if ended {
			return none, fmt.Errorf("%s ended by itself: %w", p.ID, p.Err())
		}
		select {
		case <-news:
		case <-p.Done():
			ended = true // after one more look
		case <-timeout.C:
			return none, fmt.Errorf("%s: %q %w within %v", p.ID, what, ErrNever, within)
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

// Shape is what is done to what is sent over a link in one direction.
type Shape = faultlink.Shape

// Links are how nodes that listen on ports of the loopback device reach each other: over TCP proxies
// of this process, with a way for each direction of each pair. A node must dial what Dials says.
type Links struct {
	ports []int
	links map[[2]int]*faultlink.Way // from, to
	lines map[[2]int]*faultlink.Proxy
	ways  []*Way
}

// NewLinks makes the links between nodes by their ports. Like NewWay it fails by scene.Check.
func NewLinks(ports []int) *Links {
	l := &Links{ports: ports, links: map[[2]int]*faultlink.Way{}, lines: map[[2]int]*faultlink.Proxy{}}
	for i := range ports {
		for j := range ports {
			if i != j {
				l.links[[2]int{i, j}] = faultlink.NewWay()
			}
		}
	}
	for key, there := range l.links {
		config := net.ListenConfig{Control: narrow}
		ln := scene.Must(config.Listen(context.Background(), "tcp4", "127.0.0.1:0"))
		link := faultlink.Of(there, l.links[[2]int{key[1], key[0]}])
		l.lines[key] = faultlink.On(ln, func(from net.Conn) *faultlink.Link { small(from); return link }, func(ctx context.Context) (net.Conn, error) {
			d := net.Dialer{Timeout: 2 * time.Second, Control: narrow}
			to, err := d.DialContext(ctx, "tcp4", l.address(key[1]))
			if err == nil {
				small(to)
			}
			return to, err
		})
	}
	return l
}

// sockets is how large the buffers of each socket are that the system is asked for, and segment how much a
// packet carries on these links, as on a network. With segments as large as the
// loopback device's a receiver with a small buffer offers no window for half of one, and gets one each
// 200 ms.
const (
	sockets = 32 << 10
	segment = 1400
)

// narrow is set on sockets before they connect or listen.
func narrow(_, _ string, c syscall.RawConn) (err error) {
	err2 := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, sockets),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment))
	})
	return errors.Join(err, err2)
}

// small asks the system to keep little, so that a slow link is felt at its sender.
func small(conn net.Conn) {
	c := conn.(*net.TCPConn)
	_ = c.SetReadBuffer(sockets) // a hint
	_ = c.SetWriteBuffer(sockets)
}

func (l *Links) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", l.ports[i]) }

// Dials tells node i what to dial for the address of another.
func (l *Links) Dials(i int) map[string]string {
	to := map[string]string{}
	for j := range l.ports {
		if j != i {
			to[l.address(j)] = l.lines[[2]int{i, j}].Addr()
		}
	}
	return to
}

// Link is the direction from node i to node j.
func (l *Links) Link(i, j int) *faultlink.Way { return l.links[[2]int{i, j}] }

// Shape gives every link the same shape.
func (l *Links) Shape(s Shape) {
	for _, k := range l.links {
		k.Set(s)
	}
}

// Bytes is how many bytes have arrived over all links.
func (l *Links) Bytes() (n int64) {
	for _, k := range l.links {
		n += k.Bytes()
	}
	return n
}

// Close ends all connections.
func (l *Links) Close() {
	for _, p := range l.lines {
		p.Close()
	}
	for _, w := range l.ways {
		w.proxy.Close()
	}
}

// Way is how a node reaches a server that is no node, over a proxy of this process.
type Way struct {
	Requests, Replies *faultlink.Way
	Address           string // where the node dials
	proxy             *faultlink.Proxy
}

// NewWay makes a way to a server, "unix:///path" or "host:port". It ends with Close.
func (l *Links) NewWay(server string) *Way {
	w := &Way{Requests: faultlink.NewWay(), Replies: faultlink.NewWay()}
	link := faultlink.Of(w.Requests, w.Replies)
	of := func(net.Conn) *faultlink.Link { return link }
	w.proxy = scene.Must(faultlink.Listen(of, DialTo(server)))
	w.Address = w.proxy.Addr()
	l.ways = append(l.ways, w)
	return w
}

// DialTo returns what connects to a server, "unix:///path" or "host:port".
func DialTo(server string) func(context.Context) (net.Conn, error) {
	network, to := "tcp", server
	if path, ok := strings.CutPrefix(server, "unix://"); ok {
		network, to = "unix", path
	}
	return func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: 2 * time.Second}
		return d.DialContext(ctx, network, to)
	}
}

// FreePort finds a port of the loopback device that is free, below those that the
// system gives to who connects; never the same one twice, and, so that two processes
// that look at the same moment do not find the same, from a place of its process on.
func FreePort() int {
	for i := range 10000 {
		port := 20000 + (os.Getpid()*97+i)%10000
		taken.Lock()
		was := taken.ports[port]
		taken.ports[port] = true
		taken.Unlock()
		if was {
			continue
		}
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			scene.Check(ln.Close())
			return port
		}
	}
	scene.Check(errors.New("no free port from 20000 to 29999"))
	return 0
}

var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}
