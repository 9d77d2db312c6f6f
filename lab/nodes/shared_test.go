//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// shared is a store in the memory of the process that tortures, which nodes reach by net/rpc.
var shared = Store{
	Name:  "shared",
	Start: func(context.Context, int) Servers { return start() },
	Open: func(_ context.Context, url string) Client {
		c := &client{address: url}
		return Client{Leases: c, Write: c.write}
	},
}

// Request and Reply are all that goes between a node and the server.
type (
	Request struct {
		Op       string
		Session  store.Session
		Sessions []store.Session
		Claims   []store.Claim
		Held     []store.Held
		Moves    []store.Transfer
		Names    []string
		Name     int
		Text     string
		Guarded  bool
	}
	Reply struct {
		Grants   []store.Grant
		Outcomes []store.Outcome
		Errs     []string // of the outcomes, or grants
		Records  []lease.Record
		OK       bool
		Err      string
	}
)

// codes are the errors that travel.
var codes = map[string]error{"gone": store.ErrSessionGone, "bad": lease.ErrBadRecord, "invalid": lease.ErrInvalid, "parent": lease.ErrParentLost}

func code(err error) string {
	if err == nil {
		return ""
	}
	for c, e := range codes {
		if errors.Is(err, e) {
			return c
		}
	}
	return err.Error()
}

func decode(text string) error {
	if text == "" {
		return nil
	}
	if e, ok := codes[text]; ok {
		return e
	}
	return errors.New(text)
}

// server is the store's only one.
type server struct {
	dir     string
	ln      net.Listener
	all     sync.WaitGroup
	running sync.RWMutex // held while the server is stopped

	mu     sync.Mutex
	store  *memory.Store
	conns  map[net.Conn]bool
	writes []Write
}

func start() *server {
	dir := scene.Must(os.MkdirTemp("", "torture-shared-"))
	ln := scene.Must(net.Listen("unix", filepath.Join(dir, "socket")))
	s := &server{dir: dir, ln: ln, store: memory.New(), conns: map[net.Conn]bool{}}
	r := rpc.NewServer()
	scene.Check(r.RegisterName("Store", &service{s}))
	s.all.Go(func() {
		for {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.all.Go(func() { r.ServeConn(conn) })
		}
	})
	return s
}

func (s *server) String() string { return "one store in memory" }

func (s *server) Addresses() []string { return []string{"unix://" + filepath.Join(s.dir, "socket")} }

func (s *server) URL(addresses []string) string { return addresses[0] }

func (s *server) Troubles() []Trouble {
	return []Trouble{
		{Name: "stop of the server", Weight: 4, Least: 0.2, Most: 2, Do: func(context.Context, uint64) (string, undo, error) {
			s.running.Lock()
			return "", func(context.Context) error { s.running.Unlock(); return nil }, nil
		}},
		{Name: "all connections reset", Weight: 4, Least: 0.1, Most: 0.2, Do: func(context.Context, uint64) (string, undo, error) {
			s.reset()
			return "", func(context.Context) error { return nil }, nil
		}},
	}
}

func (s *server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
		delete(s.conns, c)
	}
}

func (s *server) History(context.Context) History {
	s.mu.Lock()
	defer s.mu.Unlock()
	return History{Writes: append([]Write(nil), s.writes...)}
}

func (s *server) Close() error {
	s.ln.Close()
	s.reset()
	s.all.Wait()
	return os.RemoveAll(s.dir)
}

// service is what nodes call.
type service struct{ s *server }

// Do serves one request. One at a time is served, so that a write and its condition are one.
func (v *service) Do(q Request, p *Reply) error {
	v.s.running.RLock()
	defer v.s.running.RUnlock()
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m := v.s.store
	var err error
	switch q.Op {
	case "open":
		var g store.Grant
		g, err = m.OpenSession(ctx, q.Session)
		p.Grants = []store.Grant{g}
	case "close":
		err = m.CloseSession(ctx, q.Session)
	case "acquire":
		p.Outcomes, err = m.Acquire(ctx, q.Session, q.Claims)
	case "renew":
		p.Grants, err = m.Renew(ctx, q.Sessions)
	case "release":
		p.Outcomes, err = m.Release(ctx, q.Held)
	case "transfer":
		p.Outcomes, err = m.Transfer(ctx, q.Moves)
	case "get":
		p.Records, err = m.Get(ctx, q.Names...)
	case "list":
		for r, e := range m.List(ctx, store.Query{Prefix: q.Text}) {
			if err = e; err != nil {
				break
			}
			p.Records = append(p.Records, r)
		}
	case "write":
		p.OK = true
		if q.Guarded {
			p.Records, err = m.Get(ctx, q.Held[0].Name)
			p.OK = err == nil && len(p.Records) == 1 && p.Records[0].Token == q.Held[0].Token
		}
		if p.OK {
			v.s.writes = append(v.s.writes, Write{Name: q.Name, Position: int64(len(v.s.writes) + 1), Text: q.Text})
		}
	}
	for i := range p.Outcomes {
		p.Errs = append(p.Errs, code(p.Outcomes[i].Err))
		p.Outcomes[i].Err = nil
	}
	for i := range p.Grants {
		p.Errs = append(p.Errs, code(p.Grants[i].Err))
		p.Grants[i].Err = nil
	}
	p.Err = code(err)
	return nil
}

// client is a store.Store, in a node.
type client struct {
	address string
	mu      sync.Mutex
	conn    *rpc.Client
}

func (c *client) connected() (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.address, time.Second)
		if err != nil {
			return nil, err
		}
		c.conn = rpc.NewClient(conn)
	}
	return c.conn, nil
}

// do makes a request. What fails on the way is not known.
func (c *client) do(ctx context.Context, q Request) (p Reply, err error) {
	conn, err := c.connected()
	if err != nil {
		return p, err
	}
	var got Reply
	call := conn.Go("Store.Do", q, &got, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return p, ctx.Err()
	}
	if call.Error != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn == conn {
			c.conn = nil
		}
		return p, errors.Join(call.Error, conn.Close())
	}
	for i := range got.Outcomes {
		got.Outcomes[i].Err = decode(got.Errs[i])
	}
	for i := range got.Grants {
		got.Grants[i].Err = decode(got.Errs[i])
	}
	return got, decode(got.Err)
}

func (c *client) Limits() store.Limits { return store.Limits{Name: "shared", While: true} }

func (c *client) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	p, err := c.do(ctx, Request{Op: "open", Session: s})
	if err != nil {
		return store.Grant{}, err
	}
	return p.Grants[0], p.Grants[0].Err
}

func (c *client) CloseSession(ctx context.Context, s store.Session) error {
	_, err := c.do(ctx, Request{Op: "close", Session: s})
	return err
}

func (c *client) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	p, err := c.do(ctx, Request{Op: "acquire", Session: s, Claims: claims})
	return p.Outcomes, err
}

func (c *client) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	p, err := c.do(ctx, Request{Op: "renew", Sessions: sessions})
	return p.Grants, err
}

func (c *client) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	p, err := c.do(ctx, Request{Op: "release", Held: held})
	return p.Outcomes, err
}

func (c *client) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	p, err := c.do(ctx, Request{Op: "transfer", Moves: moves})
	return p.Outcomes, err
}

func (c *client) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	p, err := c.do(ctx, Request{Op: "get", Names: names})
	return p.Records, err
}

func (c *client) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		p, err := c.do(ctx, Request{Op: "list", Text: q.Prefix})
		for _, r := range p.Records {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(lease.Record{}, fmt.Errorf("list: %w", err))
		}
	}
}

func (c *client) write(ctx context.Context, o lease.Ownership, name int, text string) error {
	q := Request{Op: "write", Name: name, Text: text}
	if o != nil {
		q.Guarded, q.Held = true, []store.Held{{Name: o.Name(), Token: o.Token()}}
	}
	p, err := c.do(ctx, q)
	if err == nil && !p.OK {
		err = lease.ErrStale
	}
	return err
}
