package remoting_test

import (
	"bufio"
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
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/internal/direct"
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

func runNode() int {
	logs := remoting.LogTo(nil)
	if os.Getenv("HOLDFAST_ANGRY") != "" {
		logs = actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(angry{slog.DiscardHandler}) })
	}
	c := &child{system: actor.NewActorSystem(logs)}
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
	if n, _ := strconv.Atoi(os.Getenv("HOLDFAST_MAX")); n > 0 {
		opts = append(opts, remoting.WithMaxMessageSize(n))
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
			c.say("dead %s %T", d.PID.Id, d.Message)
		}
		switch e.(type) {
		case *actor.DeadLetterEvent, *remote.EndpointTerminatedEvent:
			if os.Getenv("HOLDFAST_ANGRY") != "" {
				panic("a subscriber's bug")
			}
		}
	})
	echo, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &echoActor{c: c} }), "echo")
	if err != nil {
		c.say("error %v", err)
		return 1
	}
	direct.Of(c.system).Serve("test/echo", func(rest string) (actor.Process, bool) {
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
				id = direct.ID("test/echo", strconv.Itoa(i%5))
			}
			root.Send(actor.NewPID(arg(1), id), wrapperspb.String(fmt.Sprintf("#%d/%d", i, n)))
		}
		if n == 0 {
			root.Send(actor.NewPID(arg(1), direct.ID("test/echo", "nobody")), wrapperspb.String("x"))
		}
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
