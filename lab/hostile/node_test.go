package hostile_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// introduction is what a node says of itself when it is up.
type introduction struct {
	Pid                  int
	Address, Incarnation string
	Token                uint64            // of a shard
	Bosses               map[string]uint64 // tokens of the coordinators, by type
	Targets              string            // ids that answer, with spaces between
}

// report is how the node stands.
type report struct {
	Pid, Goroutines     int
	Heap                uint64
	Errors, DeadLetters int64
	Twice, Disorder     int64 // actors that ran twice; asks that came out of order
	LostLinks           map[string]int
	Stats               remoting.Stats
	Hosted, Free        sharding.Info
	Boss                singleton.Status
}

// The node's types: shards of the first are hosted at once, those of the second
// nowhere, so that mail for them waits.
const (
	shards     = 8
	perShard   = 100
	hostedType = "account"
	freeType   = "idle"
)

// node is the process that is attacked.
type node struct {
	system          *actor.ActorSystem
	remote          *remoting.Node
	hosted, free    *sharding.Region
	boss            *singleton.Manager
	errors, letters atomic.Int64
	twice, disorder atomic.Int64

	mu      sync.Mutex
	running map[string]int
	asked   map[string]int // the last number that was asked, by who is asked
	lost    map[string]int
}

func runNode() int {
	n := &node{running: map[string]int{}, asked: map[string]int{}, lost: map[string]int{}}
	if err := n.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	n.introduce()
	commands(func(string) { n.report() })
	return 0
}

// listen starts remoting with the certificate in HOLDFAST_TLS, if there is one.
func listen(system *actor.ActorSystem) (*remoting.Node, error) {
	safety := remoting.WithPlaintext()
	if dir := os.Getenv("HOLDFAST_TLS"); dir != "" {
		server, client, err := authority.Load(dir)
		if err != nil {
			return nil, err
		}
		safety = remoting.WithTLS(server, client)
	}
	config, err := remoting.Configure("127.0.0.1", 0, safety)
	if err != nil {
		return nil, err
	}
	return remoting.Start(system, config)
}

func (n *node) start() error {
	n.system = actor.NewActorSystem(remoting.LogTo(nil))
	var err error
	if n.remote, err = listen(n.system); err != nil {
		return err
	}
	n.system.EventStream.Subscribe(func(e any) {
		if _, ok := e.(*actor.DeadLetterEvent); ok {
			n.letters.Add(1)
		}
	})
	actors.WatchLinks(n.system, func(address string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(address) < 100 { // some are forged
			n.lost[address]++
		}
	})
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "node", Address: n.system.Address()})
	if err != nil {
		return err
	}
	group, err := membership.Join(context.Background(), keeper, "g")
	if err != nil {
		return err
	}
	log := zap.New(&faults{zapcore.NewNopCore(), &n.errors})
	for _, x := range []struct {
		name   string
		settle time.Duration
		region **sharding.Region
	}{{hostedType, 0, &n.hosted}, {freeType, time.Hour, &n.free}} {
		typ := sharding.Type{Name: x.name, Props: n.props(x.name), Shards: shards}
		*x.region, err = sharding.Start(n.system, group, typ, sharding.WithSettle(x.settle), sharding.WithLogger(log),
			sharding.WithBuffer(perShard, 10*perShard*shards, hosting.DropNewest), sharding.WithPassivation(time.Second), sharding.WithMaxActive(500))
		if err != nil {
			return err
		}
	}
	n.boss, err = singleton.Start(n.system, keeper, "boss", n.props("boss"), singleton.WithLogger(log),
		singleton.WithBuffer(perShard, hosting.DropNewest), singleton.WithPreferred("somebody", "node"))
	return err
}

// introduce says where the node is and whom to ask: entities by their Refs and by the
// short way, and the singleton.
func (n *node) introduce() {
	for up := false; !up; time.Sleep(5 * time.Millisecond) {
		up = n.hosted.Info().Held == shards && n.free.Info().Token > 0 && n.boss.Status().Phase == singleton.Active
	}
	in := n.hosted.Info()
	targets := []string{n.boss.PID().Id}
	for i := range 4 {
		ref, err := n.hosted.Ref(fmt.Sprint("ref", i))
		if err != nil {
			panic(err)
		}
		id := fmt.Sprint("short", i)
		token := in.Table[sharding.ShardOf(id, shards)].Token
		targets = append(targets, ref.Id, fmt.Sprintf("holdfast/at/g/%s/%d/%s", hostedType, token, id))
	}
	say(introduction{Pid: os.Getpid(), Address: n.system.Address(), Incarnation: in.Nodes[0].Incarnation, Token: uint64(in.Table[0].Token),
		Bosses:  map[string]uint64{hostedType: uint64(in.Token), freeType: uint64(n.free.Info().Token)},
		Targets: strings.Join(targets, " ")})
}

func (n *node) report() {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n.mu.Lock()
	defer n.mu.Unlock()
	say(report{Pid: os.Getpid(), Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc, Errors: n.errors.Load(), DeadLetters: n.letters.Load(),
		Twice: n.twice.Load(), Disorder: n.disorder.Load(), LostLinks: n.lost, Stats: n.remote.Stats(),
		Hosted: n.hosted.Info(), Free: n.free.Info(), Boss: n.boss.Status()})
}

// props are those of an actor that answers "<n> <who>" with the same.
func (n *node) props(kind string) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &answerer{n: n, name: kind} })
}

type answerer struct {
	n    *node
	name string
}

func (a *answerer) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		if e, ok := sharding.Of(ctx); ok {
			a.name += "/" + e.ID()
		}
		a.count(1)
	case *actor.Stopped:
		a.count(-1)
	case *wrapperspb.StringValue:
		var number int
		var asker string
		if k, _ := fmt.Sscanf(m.Value, "%d %s", &number, &asker); k == 2 && asker == "asker" {
			a.ask(number)
			ctx.Respond(m)
		}
	}
}

// count notes that the actor runs, of which there must be one.
func (a *answerer) count(d int) {
	a.n.mu.Lock()
	defer a.n.mu.Unlock()
	if a.n.running[a.name] += d; a.n.running[a.name] > 1 {
		a.n.twice.Add(1)
	}
	if a.n.running[a.name] == 0 {
		delete(a.n.running, a.name)
	}
}

func (a *answerer) ask(number int) {
	a.n.mu.Lock()
	defer a.n.mu.Unlock()
	if number != a.n.asked[a.name]+1 {
		a.n.disorder.Add(1)
	}
	a.n.asked[a.name] = number
}

// faults counts the lines of a log that tell of a panic that was contained, or of
// what else should not be.
type faults struct {
	zapcore.Core
	n *atomic.Int64
}

func (c *faults) Enabled(l zapcore.Level) bool      { return l >= zapcore.ErrorLevel }
func (c *faults) With([]zapcore.Field) zapcore.Core { return c }
func (c *faults) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}
func (c *faults) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.n.Add(1)
	fmt.Fprintln(os.Stderr, e.Message, fields)
	return nil
}
