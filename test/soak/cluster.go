//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// patience is how long a node may take for what should take no time.
const patience = 30 * time.Second

// cluster is nodes in processes of their own, on one etcd.
type cluster struct {
	*bed
	dir      string
	settings settings // of each, but for what differs
	room     int      // entries in a journal
	nodes    []*process
	journals [][]*journal // of each node, one for each process it had
}

// newCluster starts n nodes.
func newCluster(ctx context.Context, b *bed, n, room int, s settings) (c *cluster, err error) {
	c = &cluster{bed: b, settings: s, room: room, nodes: make([]*process, n), journals: make([][]*journal, n)}
	c.settings.Endpoint = b.member().Direct()
	if c.dir, err = os.MkdirTemp("", "holdfast-soak-"); err != nil {
		return nil, err
	}
	for i := range c.nodes {
		if err := c.start(ctx, i); err != nil {
			return nil, errors.Join(err, c.end())
		}
	}
	return c, nil
}

// start starts node i, at the address that it had if it had one, and returns
// when it is up.
func (c *cluster) start(ctx context.Context, i int) error {
	s := c.settings
	s.Index = i
	s.Journal = filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, len(c.journals[i])))
	if p := c.nodes[i]; p != nil {
		_, port, err := net.SplitHostPort(p.up.Owner.Address)
		if err == nil {
			s.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			return err
		}
	}
	j, err := newJournal(s.Journal, c.room)
	if err != nil {
		return err
	}
	c.journals[i] = append(c.journals[i], j)
	p, err := startProcess(s)
	if err != nil {
		return err
	}
	c.nodes[i] = p
	p.up, err = p.await(ctx, 0, patience, "up", func(r said) bool { return r.What == isUp })
	return err
}

// tell gives all nodes an order, one right after the other.
func (c *cluster) tell(o order) error {
	for _, p := range c.nodes {
		if err := p.tell(o); err != nil {
			return err
		}
	}
	return nil
}

// each waits until every node has said what since then, and returns that.
func (c *cluster) each(ctx context.Context, since time.Duration, what string) ([]said, error) {
	got := make([]said, len(c.nodes))
	for i, p := range c.nodes {
		var err error
		if got[i], err = p.await(ctx, since, patience, what, func(r said) bool { return r.What == what }); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// all gives all nodes an order and waits until each has said what.
func (c *cluster) all(ctx context.Context, o order, what string) ([]said, error) {
	began := monotonic()
	if err := c.tell(o); err != nil {
		return nil, err
	}
	return c.each(ctx, began, what)
}

// lead makes node i the leader for all, those too that are started later, and waits
// until it hosts.
func (c *cluster) lead(ctx context.Context, i int) error {
	at := monotonic()
	c.settings.Leader = c.nodes[i].up.Owner
	if err := c.tell(order{Do: doLead, Leader: c.settings.Leader}); err != nil {
		return err
	}
	_, err := c.nodes[i].await(ctx, at, changeWithin, "hosts", func(r said) bool { return r.What == hosts })
	return err
}

// evidence is what the nodes noted, dead ones too.
func (c *cluster) evidence() (es []seen, err error) {
	for i, js := range c.journals {
		for _, j := range js {
			entries, err := j.read()
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				es = append(es, seen{e, i})
			}
		}
	}
	return es, nil
}

// noted is how many entries there are.
func (c *cluster) noted() (n int) {
	for _, js := range c.journals {
		for _, j := range js {
			n += j.len()
		}
	}
	return n
}

// end kills what still runs.
func (c *cluster) end() error {
	var errs []error
	for _, p := range c.nodes {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	for _, js := range c.journals {
		for _, j := range js {
			errs = append(errs, j.close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// process is one node's, and all it said.
type process struct {
	id   string
	cmd  *exec.Cmd
	in   io.WriteCloser
	up   said
	done chan struct{} // closed once it was waited for
	err  error         // how it ended; read after done

	mu   sync.Mutex
	said []said
}

func startProcess(s settings) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{id: s.id(), cmd: exec.Command(self), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), clusterEnv+"="+string(arg))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		// Linux tells the child when the thread that started it ends, not the
		// process: so that thread does nothing else.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		garbled := p.listen(out)
		p.err = errors.Join(garbled, p.cmd.Wait())
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.id, err)
	}
	return p, nil
}

// listen keeps what the process says, to its end.
func (p *process) listen(from io.Reader) (garbled error) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return garbled // a line that was cut off by a kill was no report yet
		}
		var r said
		if err := json.Unmarshal(line, &r); err != nil {
			garbled = errors.Join(garbled, fmt.Errorf("%s said %.100q: %w", p.id, line, err))
			continue
		}
		p.mu.Lock()
		p.said = append(p.said, r)
		p.mu.Unlock()
	}
}

func (p *process) tell(o order) error {
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ordering %s to %s: %w", p.id, o.Do, err)
	}
	return nil
}

// errNever: a node did not say something in time.
var errNever = errors.New("did not come")

// find returns the first report since then that fits.
func (p *process) find(since time.Duration, fits func(said) bool) (said, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.said {
		if r.At >= since && fits(r) {
			return r, true
		}
	}
	return said{}, false
}

// await is find, but waits for it. errNever says that it took too long.
func (p *process) await(ctx context.Context, since, within time.Duration, what string, fits func(said) bool) (said, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: %q %w within %v", p.id, what, errNever, within))
	defer cancel()
	for {
		r, ok := p.find(since, fits)
		if ok {
			return r, nil
		}
		select {
		case <-p.done:
			return r, fmt.Errorf("%s ended: %w", p.id, p.err)
		default:
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return r, err
		}
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s is not gone %v after kill -9", p.id, patience)
	}
}
