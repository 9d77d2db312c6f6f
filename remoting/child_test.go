package remoting_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// child is one node in a process of its own. It takes commands as lines of
// stdin and prints what happens as lines of stdout.
type child struct {
	mu     sync.Mutex
	system *actor.ActorSystem
	node   *remoting.Node
}

func (c *child) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

// angry is a handler that panics at what this package logs.
type angry struct{ slog.Handler }

func (angry) Enabled(context.Context, slog.Level) bool { return true }
func (a angry) WithAttrs([]slog.Attr) slog.Handler     { return a }
func (a angry) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "remoting:") {
		panic("a logger's bug")
	}
	return nil
}

// failing is a subscriber of the EventStream that fails in that way whenever it hears of a link;
// one that is deaf does not return when it hears of a dead letter.
func failing(how string) func(any) {
	return func(e any) {
		switch e.(type) {
		case *actor.DeadLetterEvent:
			if how == "deaf" {
				select {}
			}
		case *remote.EndpointConnectedEvent, *remote.EndpointTerminatedEvent:
			switch how {
			case "panic":
				panic("a subscriber's bug")
			case "hang":
				select {}
			}
		}
	}
}

// passes is a middleware for what Root sends, which says so where it sees what is not for users.
func (c *child) passes(next actor.SenderFunc) actor.SenderFunc {
	return func(ctx actor.SenderContext, target *actor.PID, envelope *actor.MessageEnvelope) {
		if target.Address == "holdfast:direct" || strings.HasPrefix(target.Id, "EndpointSupervisor") {
			c.say("a middleware sees %v", target)
		}
		next(ctx, target, envelope)
	}
}

// Write says a line of the log.
func (c *child) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "level=WARN") {
		c.say("log %s", bytes.TrimSpace(line))
	}
	return len(line), nil
}

func runNode() int {
	logs := remoting.LogTo(nil)
	if os.Getenv("HOLDFAST_ANGRY") != "" {
		logs = actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(angry{slog.DiscardHandler}) })
	}
	c := &child{}
	if os.Getenv("HOLDFAST_LOG") != "" {
		logs = remoting.LogTo(lease.SlogLogger(slog.New(slog.NewTextHandler(c, nil))))
	}
	c.system = actor.NewActorSystem(logs)
	fails := os.Getenv("HOLDFAST_SUBSCRIBER")
	if fails != "" {
		c.system.EventStream.Subscribe(failing(fails))
	}
	if os.Getenv("HOLDFAST_MIDDLEWARE") != "" {
		c.system.Root.WithSenderMiddleware(c.passes)
	}
	var opts []remoting.Option
	if dir := os.Getenv("HOLDFAST_TLS"); dir != "" {
		server, client, err := authority.Load(dir)
		if err != nil {
			c.say("error %v", err)
			return 1
		}
		opts = append(opts, remoting.WithTLS(server, client))
		switch os.Getenv("HOLDFAST_CHECK") {
		case "nobody":
			opts = append(opts, remoting.WithPeerCheck(func(*x509.Certificate, string) error { return errors.New("nobody") }))
		case "panic":
			opts = append(opts, remoting.WithPeerCheck(func(*x509.Certificate, string) error { panic("who?") }))
		case "anybody":
			opts = append(opts, remoting.WithPeerCheck(func(*x509.Certificate, string) error { return nil }))
			client.ServerName = "127.0.0.1" // that of all certificates
		}
	} else {
		opts = append(opts, remoting.WithPlaintext())
	}
	host, port := "127.0.0.1", 0
	if h := os.Getenv("HOLDFAST_HOST"); h != "" {
		host = h
	}
	if p := os.Getenv("HOLDFAST_PORT"); p != "" {
		port, _ = strconv.Atoi(p)
	}
	config, err := remoting.Configure(host, port, opts...)
	if err == nil {
		c.node, err = remoting.Start(c.system, config)
	}
	if err != nil && os.Getenv("HOLDFAST_RETRY") != "" {
		c.say("error %v", err)
		_, err = remoting.Start(c.system, config)
		c.say("again %v", err)
		if config, err = remoting.Configure(host, 0, opts...); err == nil {
			c.node, err = remoting.Start(c.system, config)
		}
	}
	if err != nil {
		c.say("error %v", err)
		return 1
	}
	c.system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			if d.PID.Address == "holdfast:direct" {
				c.say("a dead letter has the mark of a target")
			}
			c.say("dead %s %T", d.PID.Id, d.Message)
		}
		switch e.(type) {
		case *actor.DeadLetterEvent, *remote.EndpointTerminatedEvent:
			if os.Getenv("HOLDFAST_ANGRY") != "" {
				panic("a subscriber's bug")
			}
		}
	})
	if fails != "" {
		c.system.EventStream.Subscribe(failing(fails))
		actors.WatchLinks(c.system, func(address string) { c.say("broke %s", address) })
	}
	echo, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &echoActor{c: c} }), "echo")
	if err != nil {
		c.say("error %v", err)
		return 1
	}
	// It ends at its first text, and runs on the goroutine that reads the link.
	if _, err := c.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*wrapperspb.StringValue); ok {
			ctx.Stop(ctx.Self())
		}
	}, actor.WithDispatcher(actor.NewSynchronizedDispatcher(1))), "once"); err != nil {
		c.say("error %v", err)
		return 1
	}
	actors.FamiliesOf(c.system).Serve("test/echo", func(rest string) (actor.Process, bool) {
		p, ok := c.system.ProcessRegistry.GetLocal(echo.Id)
		return p, ok && rest != "nobody"
	})
	c.say("address %s", c.node.Address())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		c.do(echo, strings.Fields(in.Text()))
	}
	return 0 // the parent closed stdin, or died
}

func (c *child) do(echo *actor.PID, cmd []string) {
	root := c.system.Root
	arg := func(i int) string {
		if i < len(cmd) {
			return cmd[i]
		}
		return ""
	}
	switch arg(0) {
	case "ask": // address, text
		f := root.RequestFuture(actor.NewPID(arg(1), "echo"), wrapperspb.String(arg(2)), 30*time.Second)
		go func() {
			got, err := f.Result()
			if s, ok := got.(*wrapperspb.StringValue); ok {
				c.say("answer %s", s.Value)
			} else {
				c.say("answer %T %v", got, err)
			}
		}()
	case "big": // address, bytes
		n, _ := strconv.Atoi(arg(2))
		root.Send(actor.NewPID(arg(1), "echo"), wrapperspb.Bytes(make([]byte, n)))
	case "go": // address: not a proto message
		root.Send(actor.NewPID(arg(1), "echo"), struct{ X int }{1})
	case "untext": // address: what is no text where text must be
		bad, good, to := "\xff", &actor.MessageEnvelope{Message: wrapperspb.String("x")}, actor.NewPID(arg(1), "echo")
		for _, header := range []map[string]string{{"k": bad}, {bad: "v"}} {
			root.Send(to, &actor.MessageEnvelope{Message: good.Message, Header: header})
		}
		for _, sender := range []*actor.PID{actor.NewPID(arg(1), bad), actor.NewPID(bad, "echo")} {
			root.Send(to, &actor.MessageEnvelope{Message: good.Message, Sender: sender})
		}
		root.Send(actor.NewPID(arg(1), bad), good)
		_, err := root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			switch m := ctx.Message().(type) {
			case *actor.Started:
				ctx.Watch(to)
			case *actor.Terminated:
				c.say("terminated %s %s", m.Who.Id, m.Why)
			}
		}), bad)
		if err != nil {
			c.say("error %v", err)
		}
	case "burst": // address, count, bytes each
		n, _ := strconv.Atoi(arg(2))
		size, _ := strconv.Atoi(arg(3))
		pid, pad := actor.NewPID(arg(1), "echo"), strings.Repeat("x", size)
		for i := range n {
			root.Send(pid, wrapperspb.String(fmt.Sprintf("#%d/%d %s", i, n, pad)))
		}
	case "family": // address, count: every second one to an id that is not registered; 0: one to nobody
		n, _ := strconv.Atoi(arg(2))
		for i := range n {
			id := "echo"
			if i%2 == 1 {
				id = actors.FamilyID("test/echo", strconv.Itoa(i%5))
			}
			root.Send(actor.NewPID(arg(1), id), wrapperspb.String(fmt.Sprintf("#%d/%d", i, n)))
		}
		if n == 0 {
			root.Send(actor.NewPID(arg(1), actors.FamilyID("test/echo", "nobody")), wrapperspb.String("x"))
		}
	case "cut": // address, of a link that mail goes on over: how often is its end told?
		var told atomic.Int64
		actors.WatchLinks(c.system, func(address string) {
			if address == arg(1) {
				told.Add(1)
			}
		})
		c.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: arg(1)})
		for range 500 {
			root.Send(actor.NewPID(arg(1), "echo"), &wrapperspb.BoolValue{})
			time.Sleep(time.Millisecond)
		}
		c.say("told %d", told.Load())
	case "watch": // address, id
		root.Send(echo, watchIt{actor.NewPID(arg(1), arg(2))})
	case "stats":
		b, _ := json.Marshal(c.node.Stats())
		c.say("stats %s", b)
	case "shutdown":
		var wg sync.WaitGroup
		start := time.Now()
		for range 2 { // at once and again
			wg.Go(func() { c.node.Shutdown(arg(1) == "graceful") })
		}
		wg.Wait()
		c.node.Shutdown(true)
		c.say("down %v", time.Since(start).Seconds())
	case "restart": // the system has an address already
		config, _ := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext())
		_, err := remoting.Start(c.system, config)
		c.say("restart %v", err)
	default:
		c.say("what? %v", cmd)
	}
}

type watchIt struct{ who *actor.PID }

// echoActor answers text, and counts bursts "#i/n" and whether they came in
// order.
type echoActor struct {
	c    *child
	next int
}

func (e *echoActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *wrapperspb.StringValue:
		var i, n int
		if k, _ := fmt.Sscanf(m.Value, "#%d/%d", &i, &n); k == 2 {
			if i != e.next {
				e.c.say("burst broken: %d after %d", i, e.next-1)
			}
			if e.next = i + 1; e.next == n {
				e.next = 0
				e.c.say("burst %d", n)
			}
			return
		}
		ctx.Respond(wrapperspb.String("re:" + m.Value))
	case *wrapperspb.BytesValue:
		e.c.say("bytes %d", len(m.Value))
	case watchIt:
		ctx.Watch(m.who)
	case *actor.Terminated:
		e.c.say("terminated %s %s", m.Who.Id, m.Why)
	}
}

// The test binary is its own cluster: with HOLDFAST_NODE set it runs one node
// instead of the tests, since one process can hold one remote only (a second
// Start writes gRPC's logger while the first uses it).
func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_NODE") != "" {
		os.Exit(runNode())
	}
	goleak.VerifyTestMain(m)
}
