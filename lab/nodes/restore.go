//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

// restoreSlack is what a machine that does other things may add to a bound.
const restoreSlack = 8 * time.Second

// restoreAsk is a question to a singleton; it answers with its token.
type (
	restoreAsk   struct{ N int }
	restoreReply struct{ Token lease.Token }
)

// restoreNode is an actor system with its Keeper, in this process.
type restoreNode struct {
	system *actor.ActorSystem
	keeper *lease.Keeper
	all    []*singleton.Manager
	health func(context.Context) error

	mu   sync.Mutex
	said int // lines of the log about a setback
}

// restoreRun is what is judged.
type restoreRun struct {
	*etcdtest.Cluster
	r       *scene.Run
	closers []func() error
	ttl     time.Duration
	admin   *clientv3.Client // past the way that nodes take
	route   *etcdtest.Route
	nodes   []*restoreNode
	fences  []lease.Token // by singleton: the highest token that answered
	back    int           // answers under lower ones
	asked   int
}

// restore has the data of a live etcd lost, put back to an older copy, and put
// back with its revision beyond all that was.
func restore(ctx context.Context, r *scene.Run) (err error) {
	nodes, names, ttl := 3, 20, 4*time.Second
	if r.Short {
		nodes, names, ttl = 2, 3, 2*time.Second
	}
	if err := errors.Join(remoting.Register[restoreAsk]("lab.restoreAsk"), remoting.Register[restoreReply]("lab.restoreReply")); err != nil {
		return err
	}
	c, err := etcdtest.Run(ctx, etcdtest.Options{Dir: r.Dir})
	if err != nil {
		return err
	}
	s := &restoreRun{Cluster: c, r: r, ttl: ttl, fences: make([]lease.Token, names)}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.admin, err = s.keep(c.NewClient(func(o *clientv3.Config) { o.Endpoints = []string{s.member().Direct()} })); err != nil {
		return err
	}
	if s.route, err = c.NewRoute(); err != nil {
		return err
	}
	if err := s.start(nodes); err != nil {
		return err
	}
	if _, err := s.reached(ctx, time.Minute); err != nil {
		return err
	}
	copied := filepath.Join(r.Dir, "copy")
	if err := s.replace(ctx, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) }); err != nil {
		return err
	}
	lost := func(data string) error { return errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o700)) }
	older := func(data string) error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied))) }
	for _, x := range []struct {
		what    string
		replace func(string) error
		bump    bool
	}{{"data lost", lost, false}, {"an older copy", older, false}, {"an older copy, bumped", older, true}} {
		if err := s.once(ctx, x.what, x.replace, x.bump); err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
	}
	return nil
}

func (s *restoreRun) member() *etcdtest.Member { return s.Members()[0] }

func (s *restoreRun) keep(c *clientv3.Client, err error) (*clientv3.Client, error) {
	if err == nil {
		s.closers = append(s.closers, c.Close)
	}
	return c, err
}

func (s *restoreRun) close() error {
	for i := len(s.closers) - 1; i >= 0; i-- {
		_ = s.closers[i]() // clients of cut ways may complain
	}
	return s.Close()
}

// start makes the nodes, with every singleton on each.
func (s *restoreRun) start(nodes int) error {
	net := memnet.New()
	for i := range nodes {
		client, err := s.keep(s.route.NewClient())
		if err != nil {
			return err
		}
		store, err := etcd.New(client)
		if err != nil {
			return err
		}
		n := &restoreNode{system: actor.NewActorSystem(remoting.LogTo(nil))}
		net.Join(n.system, fmt.Sprintf("node-%d:1", i))
		log := zap.New(zapcore.NewNopCore(), zap.WrapCore(func(zapcore.Core) zapcore.Core { return &countCore{n: n} }))
		n.keeper, err = lease.NewKeeper(store, lease.Config{ID: fmt.Sprint("node-", i), Address: n.system.Address(), TTL: s.ttl, Logger: log})
		if err != nil {
			return err
		}
		n.health = singleton.Health(n.system)
		s.nodes = append(s.nodes, n)
		s.closers = append(s.closers, func() error {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_ = n.keeper.Close(gone) // as the process's death would: it leaves everything standing
			return nil
		})
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(restoreAsk); ok {
				if g, ok := singleton.Of(ctx); ok {
					ctx.Respond(restoreReply{g.Token()})
				}
			}
		})
		for j := range s.fences {
			m, err := singleton.Start(n.system, n.keeper, fmt.Sprint("s", j), props)
			if err != nil {
				return err
			}
			n.all = append(n.all, m)
		}
	}
	return nil
}

// countCore counts what a log says of setbacks.
type countCore struct {
	zapcore.Core
	n *restoreNode
}

func (*countCore) Enabled(l zapcore.Level) bool { return l >= zapcore.ErrorLevel }

func (c *countCore) With([]zapcore.Field) zapcore.Core { return c }

func (c *countCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *countCore) Write(zapcore.Entry, []zapcore.Field) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.said++
	return nil
}

func (*countCore) Sync() error { return nil }

// replace stops etcd, cuts the nodes off, changes its data and starts it again.
func (s *restoreRun) replace(ctx context.Context, change func(data string) error) error {
	if err := s.member().Kill(); err != nil {
		return err
	}
	if err := change(filepath.Join(s.r.Dir, s.member().Name(), "data")); err != nil {
		return err
	}
	return s.member().Restart(ctx)
}

// revision is etcd's.
func (s *restoreRun) revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := s.admin.Get(ctx, "none")
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// write has the revision grow until it is there.
func (s *restoreRun) write(ctx context.Context, until int64) error {
	for rev := int64(0); rev < until; {
		resp, err := s.admin.Put(ctx, "lab/restore", "")
		if err != nil {
			return err
		}
		rev = resp.Header.Revision
	}
	return nil
}

// once plays one setback.
func (s *restoreRun) once(ctx context.Context, what string, change func(string) error, bump bool) error {
	rev, err := s.revision(ctx)
	if err != nil {
		return err
	}
	rev += 500
	if err := s.write(ctx, rev); err != nil {
		return err
	}
	if _, err := s.reached(ctx, time.Minute); err != nil { // so that all have seen it
		return err
	}
	for _, n := range s.nodes {
		if _, err := n.keeper.List(ctx, "none"); err != nil {
			return err
		}
		n.mu.Lock()
		n.said = 0
		n.mu.Unlock()
	}
	s.route.Link(s.member()).Cut()
	if err := s.replace(ctx, change); err != nil {
		return err
	}
	if bump {
		if err := s.write(ctx, rev+1000); err != nil {
			return err
		}
	}
	s.route.Link(s.member()).Heal()
	began := time.Now()
	if bump {
		dark, err := s.reached(ctx, 2*time.Minute)
		if err != nil {
			return err
		}
		s.r.Within(what+": dark, no decision needed", dark, 4*s.ttl+restoreSlack)
		return s.judge(what, 0)
	}
	for _, n := range s.nodes {
		for !errors.Is(n.keeper.Health(ctx), lease.ErrSetback) || !errors.Is(n.health(ctx), lease.ErrSetback) {
			if time.Since(began) > time.Minute {
				return fmt.Errorf("node %s: Health says nothing: %v", n.system.Address(), n.keeper.Health(ctx))
			}
			if err := machine.Pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	s.r.Within(what+": until every Health said so", time.Since(began), s.ttl+restoreSlack)
	if err := machine.Pause(ctx, s.ttl); err != nil {
		return err
	}
	held := 0
	for _, n := range s.nodes {
		for _, m := range n.all {
			if m.Status().Phase == singleton.Active {
				held++
			}
		}
	}
	s.r.AtMost(what+": hosted before a decision", float64(held), 0, "")
	decided := time.Now()
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	clear(s.fences) // reset
	for i, n := range s.nodes {
		all.Go(func() { errs[i] = n.keeper.AcceptHistory(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := s.reached(ctx, 2*time.Minute); err != nil {
		return err
	}
	s.r.Within(what+": held and reached after the decision", time.Since(decided), s.ttl+restoreSlack)
	s.r.Printf("   %s: dark for %v from etcd's return, %v of it before the decision", what, scene.Short(time.Since(began)), scene.Short(decided.Sub(began)))
	return s.judge(what, 1)
}

// judge looks at what holds after every setback.
func (s *restoreRun) judge(what string, lines int) error {
	unsaid := 0
	for _, n := range s.nodes {
		if err := n.keeper.Setback(); err != nil {
			return err
		}
		n.mu.Lock()
		if n.said != lines {
			unsaid++
		}
		n.mu.Unlock()
	}
	s.r.AtMost(what+fmt.Sprintf(": nodes whose log did not say it %d times", lines), float64(unsaid), 0, "")
	s.r.AtMost(what+": answers under tokens that went back", float64(s.back), 0, "")
	return nil
}

// reached asks every singleton from every node, until all have answered under tokens
// that a fence lets in; it says how long that took.
func (s *restoreRun) reached(ctx context.Context, most time.Duration) (time.Duration, error) {
	began := time.Now()
	for j := range s.fences {
		for _, n := range s.nodes {
			for {
				s.asked++
				answer, err := n.system.Root.RequestFuture(n.all[j].PID(), restoreAsk{s.asked}, 300*time.Millisecond).Result()
				if got, ok := answer.(restoreReply); ok && err == nil {
					if got.Token < s.fences[j] {
						s.back++
					}
					s.fences[j] = max(s.fences[j], got.Token)
					break
				}
				if time.Since(began) > most {
					return 0, fmt.Errorf("singleton s%d does not answer %s: %v, %v, %+v", j, n.system.Address(), answer, err, n.all[j].Status())
				}
				if err := machine.Pause(ctx, 20*time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
	}
	return time.Since(began), nil
}
