package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

type Add struct{ N int }

type Sum struct{ N int }

type adder struct{ sum int }

func (a *adder) Receive(ctx actor.Context) {
	if m, ok := ctx.Message().(Add); ok {
		a.sum += m.N
		ctx.Respond(Sum{a.sum})
	}
}

func adders() *actor.Props { return actor.PropsFromProducer(func() actor.Actor { return &adder{} }) }

const soon = 20 * time.Second

// start starts a node on the loopback interface, which the test ends.
func start(t *testing.T, id string, store store.Store, change ...func(*node.Config)) *node.Node {
	t.Helper()
	cfg := node.Config{ID: id, Store: store, Listen: "127.0.0.1:0", Plaintext: true, Group: "bank",
		Messages: node.Types(Add{}, &Sum{}), Lease: lease.Config{TTL: 2 * time.Second}, Logger: zap.NewNop()}
	for _, c := range change {
		c(&cfg)
	}
	n := must(node.Start(t.Context(), cfg))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = n.Stop(ctx) // most tests have
	})
	return n
}

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, n.Stop(ctx))
}

func ask(t *testing.T, ask func(context.Context) (Sum, error)) Sum {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	s := must(ask(ctx))(t)
	return s
}

func get(t *testing.T, n *node.Node, path string) (int, string) {
	t.Helper()
	resp := must(http.Get("http://" + n.HTTPAddress() + path))(t)
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

func TestHTTP(t *testing.T) {
	n := start(t, "a", memory.New(), func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	cron := must(n.Singleton("cron", adders()))(t)
	must(n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 4}))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
	code, body := get(t, n, "/livez")
	require.Equal(t, http.StatusOK, code, body)
	code, body = get(t, n, "/readyz")
	require.Equal(t, http.StatusOK, code, body)
	code, body = get(t, n, "/info")
	require.Equal(t, http.StatusOK, code, body)
	var info struct {
		ID, Address, Group string
		Singletons         []struct{ Name, Phase string }
		Types              []struct{ Type string }
		Events             any
	}
	require.NoError(t, json.Unmarshal([]byte(body), &info), body)
	require.Equal(t, []string{"a", n.System().Address(), "bank"}, []string{info.ID, info.Address, info.Group})
	require.Len(t, info.Singletons, 1)
	require.Equal(t, "cron active", info.Singletons[0].Name+" "+info.Singletons[0].Phase)
	require.Equal(t, "account", info.Types[0].Type)
	require.Nil(t, info.Events)

	stop(t, n)
	require.ErrorIs(t, n.Health(t.Context()), node.ErrStopped)
	_, err := http.Get("http://" + n.HTTPAddress() + "/livez")
	require.Error(t, err)
}

func TestANodeStartsWithoutItsStore(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	store.Partition()
	n := start(t, "a", store, func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	require.Nil(t, n.Group())
	_, err := n.Group().Leadership()
	require.ErrorIs(t, err, lease.ErrInvalid, "no panic")
	soonOver, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = n.JoinedGroup(soonOver)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	code, body := get(t, n, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, `group "bank" is not joined yet`)
	code, _ = get(t, n, "/livez")
	require.Equal(t, http.StatusOK, code)
	cron := must(n.Singleton("cron", adders()))(t)
	started := make(chan error, 1)
	go func() {
		_, err := n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 4})
		started <- err
	}()
	select {
	case err := <-started:
		require.Fail(t, "sharded types need the group", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	store.Heal()
	require.NoError(t, <-started)
	require.Same(t, n.Group(), must(n.JoinedGroup(t.Context()))(t))
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
	require.Eventually(t, func() bool { return n.Health(t.Context()) == nil }, soon, 20*time.Millisecond)
	stop(t, n)
}

func TestStopEndsWhatIsBeingStarted(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	store.Partition()
	n := start(t, "a", store)
	started := make(chan error, 1)
	go func() { _, err := n.Sharded("account", adders()); started <- err }()
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_ = n.Stop(ctx) // the Keeper may have something to say of the store
	require.ErrorIs(t, <-started, node.ErrStopped)
	require.Nil(t, n.Group())
}

func TestAStartEndsWithItsContext(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	store.Partition()
	address := freeAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := node.Start(ctx, node.Config{ID: "a", Store: store, Group: "bank", Listen: address, Plaintext: true, HTTP: "127.0.0.1:0",
		Lease: lease.Config{TTL: time.Second}, StopWithin: 2 * time.Second, Logger: zap.NewNop()})
	require.ErrorContains(t, err, "node.Start: ")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the store", "what it waits for")
	requireNobodyListens(t, address) // what was started has been ended
}

// freeAddress is one that no connection is made from meanwhile, where all of 127.0.0.0/8 is
// this machine's: connections to loopback come from 127.0.0.1 and any free port.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// requireNobodyListens dials: that the address can be listened at again says nothing,
// as the system may have given its port to a connection of another process.
func requireNobodyListens(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNREFUSED, address)
}

func TestBadConfigs(t *testing.T) {
	store := memory.New()
	for says, cfg := range map[string]node.Config{
		"ID: ":            {Store: store},
		"Store: ":         {ID: "a"},
		"Lease.ID: ":      {ID: "a", Store: store, Lease: lease.Config{ID: "b"}},
		"Lease.Address: ": {ID: "a", Store: store, Lease: lease.Config{Address: "b:1"}},
		"TTL":             {ID: "a", Store: store, Lease: lease.Config{TTL: time.Millisecond}},
		"StopWithin: ":    {ID: "a", Store: store, StopWithin: -1},
		"TLS: ":           {ID: "a", Store: store, Listen: "127.0.0.1:0"},
		"Listen: ":        {ID: "a", Store: store, Plaintext: true},
		"others reach":    {ID: "a", Store: store, Listen: ":8080", Plaintext: true},
		"host:port":       {ID: "a", Store: store, Listen: "8080", Plaintext: true},
		"must be host:po": {ID: "a", Store: store, Listen: "a:x", Plaintext: true},
		"Messages: ":      {ID: "a", Store: store, Messages: node.Types(nil)},
		"nil Option":      {ID: "a", Store: store, Group: "g", Membership: []membership.Option{nil}},
		"server TLS: inv": {ID: "a", Store: store, Listen: "127.0.0.1:0", TLS: &node.TLS{Client: &tls.Config{}}},
		"Start: TLS: rem": {ID: "a", Store: store, Listen: "127.0.0.1:0", TLS: &node.TLS{Server: &tls.Config{}, Client: &tls.Config{}}},
		"all interfaces":  {ID: "a", Store: store, Listen: "0.0.0.0:0", Plaintext: true},
		"Advertise: rem":  {ID: "a", Store: store, Listen: "0.0.0.0:0", Advertise: "a", Plaintext: true},
		"JSON":            {ID: "a", Store: store, Messages: node.Types(func() {})},
		"Group: ":         {ID: "a", Store: store, Group: string([]byte{0xff})},
	} {
		n, err := node.Start(t.Context(), cfg)
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
		require.Nil(t, n)
	}

	inputtest.Fields(t, node.Config{ID: "a", Store: store, Logger: zap.NewNop()}, []any{(*memory.Store)(nil), (*noop.MeterProvider)(nil), (*tracenoop.TracerProvider)(nil)}, nil,
		func(c node.Config) error {
			n, err := node.Start(context.Background(), c)
			if err != nil {
				return err
			}
			return n.Stop(context.Background())
		})

	n := must(node.Start(t.Context(), node.Config{ID: "a", Store: store, Logger: zap.NewNop()}))(t)
	inputtest.Functions(t, map[string]func() error{
		"Start": func() error { _, err := node.Start(inputtest.None, node.Config{ID: "b", Store: store}); return err },
	})
	inputtest.Contexts(t, n)
	require.NoError(t, n.Health(t.Context()), "what is refused has changed nothing")
	inputtest.Zeros(t, nil, new(node.Node))
	require.ErrorIs(t, new(node.Node).Stop(t.Context()), lease.ErrInvalid)
	_, err := new(node.Node).Singleton("x", adders())
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = new(node.Node).Sharded("x", adders())
	require.ErrorContains(t, err, "must come from node.Start")
	_, err = n.Sharded("account", adders())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "Config.Group")
	stop(t, n)
}

// A host that no link can be made to is named, with the cause, to the asker.
func TestAHostThatIsNotReached(t *testing.T) {
	store := memory.New()
	a := start(t, "a", store, func(c *node.Config) { c.Advertise = "127.0.0.1:1" })
	b := start(t, "b", store)
	props := actor.PropsFromFunc(func(actor.Context) {})
	ma := must(a.Singleton("x", props))(t)
	require.Eventually(t, func() bool { return ma.Status().Phase == singleton.Active }, 10*time.Second, 10*time.Millisecond)
	mb := must(b.Singleton("x", props))(t)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := singleton.Ask[Sum](ctx, mb, Add{})
		require.Error(t, err)
		return strings.Contains(err.Error(), "the host at 127.0.0.1:1 is not reached since") && strings.Contains(err.Error(), "Z: transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused)")
	}, 30*time.Second, 10*time.Millisecond)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

// A node restarts under its address while another node still has an answer for its former process. All
// mail that the other node then sends to a singleton of the new process arrives.
func TestMailToANodeThatRestartedUnderItsAddress(t *testing.T) {
	store := memory.New()
	a := start(t, "a", store)
	const late = -1
	slow := actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(Add); ok {
			if m.N == late {
				time.Sleep(200 * time.Millisecond)
			}
			ctx.Respond(Sum(m))
		}
	})
	answers := must(a.Singleton("answers", slow))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, answers, Add{0}) })

	address := freeAddress(t)
	at := func(c *node.Config) { c.Listen = address }
	b := start(t, "b", store, at)
	asks := must(b.Singleton("answers", slow, singleton.WithProxyOnly()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, asks, Add{0}) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	_, _ = singleton.Ask[Sum](ctx, asks, Add{late}) // its answer finds no node
	cancel()
	stop(t, b)
	time.Sleep(300 * time.Millisecond)

	b = start(t, "b", store, at)
	host := must(b.Singleton("sum", adders()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, host, Add{0}) })
	sum := must(a.Singleton("sum", adders(), singleton.WithProxyOnly()))(t)
	for range 60 {
		a.System().Root.Send(sum.PID(), Add{1})
		time.Sleep(20 * time.Millisecond)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Equal(c, Sum{60}, ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, host, Add{0}) }))
	}, soon/2, 50*time.Millisecond, "%+v", sum.Status())
	stop(t, a)
	stop(t, b)
}

// TestStopNamesWhatWasNotReleased: the store has frozen, so the leases stay for a TTL.
func TestStopNamesWhatWasNotReleased(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	n := start(t, "a", store)
	cron := must(n.Singleton("cron", adders()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
	store.Partition()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := n.Stop(ctx)
	require.Less(t, time.Since(began), soon)
	require.ErrorContains(t, err, "singleton/cron")
	require.ErrorContains(t, err, "stopping keeper")
	require.True(t, n.System().IsStopped(), "a step that failed kept the later ones from being done")
	requireNobodyListens(t, n.System().Address())
	require.Equal(t, err.Error(), n.Stop(t.Context()).Error(), "a later call returns the same")
}

// TestRunEndsWithItsContext: what Run returns is what Stop did.
func TestRunEndsWithItsContext(t *testing.T) {
	n := start(t, "a", memory.New())
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	select {
	case err := <-ran:
		require.Fail(t, "it ran", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.NoError(t, <-ran)
	require.True(t, n.System().IsStopped())
}

func TestTheEndOfTheActorSystem(t *testing.T) {
	n := start(t, "a", memory.New(), func(c *node.Config) { c.Listen, c.Plaintext = "", false })
	n.System().Shutdown()
	require.NoError(t, n.Run(t.Context()))
}
