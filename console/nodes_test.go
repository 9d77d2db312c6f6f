//go:build !race

// Two nodes in one process: see remoting.Start.

package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/store"
)

type idle struct{}

func (idle) Receive(actor.Context) {}

func props() *actor.Props { return actor.PropsFromProducer(func() actor.Actor { return idle{} }) }

// start starts a node with a singleton and a sharded type.
func start(t *testing.T, s store.Store, id string) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), node.Config{ID: id, Store: s, Group: "shop", Listen: "127.0.0.1:0", Plaintext: true, Logger: zap.NewNop(),
		Lease: lease.Config{TTL: 2 * time.Second}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	_, err = n.Singleton("cron", props())
	require.NoError(t, err)
	_, err = n.Sharded("account", props())
	require.NoError(t, err)
	return n
}

func view(t *testing.T, n *node.Node) *console.Console {
	t.Helper()
	c, err := console.New(n.Keeper(), n.System(), console.Config{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// eventually looks until a Snapshot is as it should be.
func eventually(t *testing.T, c *console.Console, is func(s console.Snapshot) error) (s console.Snapshot) {
	t.Helper()
	var last error
	require.Eventually(t, func() bool {
		now, err := c.Snapshot(t.Context(), time.Time{})
		require.NoError(t, err)
		s, last = now, is(now)
		return last == nil
	}, 30*time.Second, 100*time.Millisecond, "%v", why{&last})
	return s
}

// why is an error as it is when it is printed.
type why struct{ err *error }

func (w why) String() string { return fmt.Sprint(*w.err) }

func lane(s console.Snapshot, name string) (l console.Lane) {
	for _, l := range s.Timeline.Lanes {
		if l.Name == name {
			return l
		}
	}
	return l
}

// What one node does not know it asks the other for; who left is seen in the other's journal.
func TestTwoNodes(t *testing.T) {
	s := memory.New()
	a := start(t, s, "a")
	b := start(t, s, "b")
	c := view(t, b)
	snap := eventually(t, c, func(s console.Snapshot) error {
		switch {
		case len(s.Answered) != 2:
			return fmt.Errorf("answered: %v, missing: %v", s.Answered, s.Missing)
		case len(s.Singletons) != 1 || s.Singletons[0].Phase != "active" || len(s.Singletons[0].Candidates) != 2:
			return fmt.Errorf("singletons: %+v", s.Singletons)
		case len(s.Types) != 1 || s.Types[0].Hosted != 256 || s.Types[0].Nodes[1].Shards != 128:
			return fmt.Errorf("types: %+v", s.Types)
		}
		return nil
	})
	require.Equal(t, "b", snap.Node)
	require.Equal(t, []string{"shop"}, snap.Cluster.Groups)
	require.NotNil(t, snap.Cluster.ClockError)
	require.Empty(t, snap.Problems)
	require.Equal(t, "a", snap.Singletons[0].Host.ID)
	require.True(t, snap.Nodes[0].Leader)
	require.EqualValues(t, 1, snap.Nodes[0].Counters["lives"])
	require.Equal(t, "asked", snap.Nodes[0].Source)
	for _, x := range snap.Types[0].Table {
		require.Equal(t, "active", x.Phase, "shard %d, of %s", x.Shard, x.Owner)
	}
	require.NoError(t, a.Stop(t.Context()))
	snap = eventually(t, c, func(s console.Snapshot) error {
		if x := s.Singletons[0]; x.Host == nil || x.Host.ID != "b" || len(x.Handovers) == 0 || s.Nodes[0].State != "gone" {
			return fmt.Errorf("%+v of %+v", x, s.Nodes)
		}
		return nil
	})
	require.Equal(t, "b", snap.Singletons[0].Handovers[0].To)
	spans := lane(snap, "singleton/cron").Spans
	require.Equal(t, "a", spans[len(spans)-2].Holder)
	require.False(t, spans[len(spans)-2].To.IsZero())
	require.True(t, spans[len(spans)-1].RunTo.IsZero())
	require.Equal(t, 256, snap.Types[0].Hosted)
}

// A node that does not answer is missing, and what the records say of it stands.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	s := memory.New()
	a := start(t, s, "a")
	c := view(t, start(t, s, "b"))
	a.Remoting().Shutdown(false)
	snap := eventually(t, c, func(s console.Snapshot) error {
		if len(s.Missing) != 1 {
			return fmt.Errorf("missing: %+v", s.Missing)
		}
		return nil
	})
	require.Equal(t, "a", snap.Missing[0].Node)
	require.Equal(t, "records", snap.Nodes[0].Source)
	require.Equal(t, "held", snap.Singletons[0].Phase)
	require.False(t, snap.Timeline.Complete)

	// However many look, they do not wait for it one after the other.
	var all sync.WaitGroup
	began := time.Now()
	for range 20 {
		all.Go(func() {
			_, err := c.Snapshot(t.Context(), time.Time{})
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 15*time.Second, "2 s for each would be 40")
}

// A node that has more events than fit one message sends them in several.
func TestMoreEventsThanFitAMessage(t *testing.T) {
	s := memory.New()
	a := start(t, s, "a")
	c := view(t, start(t, s, "b"))
	const many = 1800
	for i := range many {
		a.Keeper().Journal().Add(journal.Event{At: time.Now(), Kind: journal.Acquired, Name: "leader/x", Token: uint64(i + 1), Why: errors.New(strings.Repeat("<", 512))})
	}
	eventually(t, c, func(s console.Snapshot) error {
		seen := map[uint64]bool{}
		for _, e := range s.Events {
			if e.Name == "leader/x" {
				seen[e.Token] = true
			}
		}
		if len(seen) != many {
			return fmt.Errorf("%d events", len(seen))
		}
		return nil
	})
}

// However many look, nodes are asked once a second.
func TestManyViewersAreOne(t *testing.T) {
	n := start(t, memory.New(), "a")
	c := view(t, n)
	eventually(t, c, func(s console.Snapshot) error {
		if len(s.Types) != 1 || s.Types[0].Hosted != 256 {
			return fmt.Errorf("%+v", s.Types)
		}
		return nil
	})
	var asked atomic.Int64
	inquiry.Of(n.System()).Tell("test", func(context.Context, inquiry.Request, *inquiry.Report) { asked.Add(1) })
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for ; time.Since(began) < 2500*time.Millisecond; time.Sleep(50 * time.Millisecond) {
				_, err := c.Snapshot(t.Context(), time.Time{})
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, asked.Load(), int64(time.Since(began)/time.Second)+2)
	require.NotZero(t, asked.Load())
}

// A node answers eight questions at a time: others hear at once that it is busy.
func TestQuestionsAtOnceAreBounded(t *testing.T) {
	s := memory.New()
	a, b := start(t, s, "a"), start(t, s, "b")
	free, busy := make(chan struct{}), make(chan error)
	inquiry.Of(a.System()).Tell("test", func(context.Context, inquiry.Request, *inquiry.Report) { <-free })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := inquiry.Of(b.System()).Ask(t.Context(), a.System().Address(), inquiry.Request{}); err != nil {
				busy <- err
			}
		})
	}
	for range 12 {
		require.ErrorContains(t, <-busy, "busy")
	}
	close(free)
	all.Wait()
}

// Actions go to the node that they concern, which carries them out only if it has them, too.
func TestActions(t *testing.T) {
	s := memory.New()
	a, b := start(t, s, "a"), start(t, s, "b")
	cfg := console.Config{Actions: true, Authorize: func(*http.Request, console.Access) (string, error) { return "ada", nil }}
	c, err := console.New(b.Keeper(), b.System(), cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	hostOf := func(want string) func(s console.Snapshot) error {
		return func(s console.Snapshot) error {
			if x := s.Singletons; len(x) != 1 || x[0].Phase != "active" || x[0].Host.ID != want || len(x[0].Candidates) != 2 || !x[0].Candidates[1].Eligible {
				return fmt.Errorf("%+v", x)
			}
			return nil
		}
	}
	eventually(t, c, hostOf("a"))
	act := func(r console.Request) (string, error) {
		done, err := c.Act(t.Context(), "ada", r)
		return done.Text, err
	}
	_, err = act(console.Request{Action: "move", Name: "cron", To: "b"})
	require.ErrorContains(t, err, "not enabled on that node")
	inquiry.Of(a.System()).Allow()
	other, err := inquiry.Of(b.System()).Ask(t.Context(), a.System().Address(), inquiry.Request{Do: &inquiry.Action{Action: "drain", Of: "another"}})
	require.NoError(t, err)
	require.Equal(t, inquiry.Conflict, other.Code)
	require.False(t, other.Draining)
	for r, text := range map[console.Request]string{
		{Action: "explode"}:                                   "no lease",
		{Action: "drain", Node: "c"}:                          "no node",
		{Action: "move", Name: "other"}:                       "no lease",
		{Action: "move", Name: "singleton/cron", To: "b"}:     "no lease", // Authorize was asked for another name
		{Action: "move", Name: "cron", Token: 1}:              "by now",
		{Action: "move", Name: "cron", To: "c"}:               "would not take over",
		{Action: "release", Name: "member/shop/a"}:            "no lease",
		{Action: "release", Name: "leader/shop"}:              "nothing to release",
		{Action: "release", Name: "coordinator/shop/account"}: "nothing to release",
	} {
		_, err := act(r)
		require.ErrorContains(t, err, text, "%+v", r)
	}
	text, err := act(console.Request{Action: "move", Name: "cron", To: "b"})
	require.NoError(t, err)
	require.Contains(t, text, "move")
	snap := eventually(t, c, func(s console.Snapshot) error {
		if err := hostOf("b")(s); err != nil || s.Singletons[0].Handovers[0].Kind != "planned" {
			return fmt.Errorf("%w; %+v", err, s.Singletons)
		}
		return nil
	})
	asked := 0
	for _, e := range snap.Events {
		if e.Kind == "asked" && e.Name == "singleton/cron" && e.Node == "a" {
			require.Contains(t, e.Reason, "move")
			asked++
		}
	}
	require.NotZero(t, asked)

	_, err = act(console.Request{Action: "drain", Node: "b"})
	require.NoError(t, err)
	snap = eventually(t, c, func(s console.Snapshot) error {
		if x := s.Singletons[0]; x.Host == nil || x.Host.ID != "a" || s.Types[0].Nodes[0].Shards != 256 || s.Nodes[1].State != "draining" {
			return fmt.Errorf("%+v, %+v, %+v", x, s.Types[0].Nodes, s.Nodes[1])
		}
		return nil
	})
	_, err = act(console.Request{Action: "undrain", Node: "b"})
	require.NoError(t, err)

	h, err := a.Lease("outbox/orders")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- lease.Run(t.Context(), h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
	}()
	eventually(t, c, func(s console.Snapshot) error {
		for _, l := range s.Leases {
			if l.Name == "outbox/orders" && l.Owner != nil {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Leases)
	})
	_, err = act(console.Request{Action: "release", Name: "outbox/orders"})
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, lease.ErrAsked)
}

// The page, each node's Info and what the nodes own agree, and so does GET /info.
func TestPartitionsOfThreeNodes(t *testing.T) {
	s := memory.New()
	const evil = `<img src=x onerror="alert(1)">/../x`
	var calls atomic.Int64
	var nodes []*node.Node
	var all []*partition.Partitions
	for _, id := range []string{"a", "b", "c"} {
		n := start(t, s, id)
		p, err := n.Partitions(partition.Config{Name: "tenants", Keys: []string{evil, "b", "c", "d", "e", "f"}, Own: func(ctx context.Context, o partition.Owned) error {
			if o.Key == evil && calls.Add(1) <= 3 { // after five another node tries
				return errors.New("<b>no disk</b>")
			}
			<-ctx.Done()
			return nil
		}})
		require.NoError(t, err)
		nodes, all = append(nodes, n), append(all, p)
	}
	c := view(t, nodes[1])
	of := func(s console.Snapshot) (console.Type, error) {
		for _, x := range s.Types {
			if x.Kind == "partition" {
				return x, nil
			}
		}
		return console.Type{}, fmt.Errorf("types: %+v", s.Types)
	}
	agrees := func(s console.Snapshot) error {
		x, err := of(s)
		if err != nil {
			return err
		}
		if x.Group != "shop" || x.Type != "tenants" || x.Shards != 6 || x.Hosted != 6 || x.Moving != 0 || len(x.Nodes) != 3 {
			return fmt.Errorf("%+v", x)
		}
		owners := map[string]string{}
		for _, row := range x.Table {
			if owners[row.Key] = row.Owner; row.Phase != "active" || row.Token == 0 || row.Since.IsZero() {
				return fmt.Errorf("%+v", row)
			}
		}
		for i, p := range all {
			in := p.Info()
			if len(p.Owned()) != 2 || x.Nodes[i].Shards != 2 {
				return fmt.Errorf("%+v", in)
			}
			for _, row := range in.Table {
				if o, _ := p.Owner(row.Number); owners[row.Key] != row.Owner || o.ID != row.Owner {
					return fmt.Errorf("%q is owned by %q, by Info %q, by Owner %q", row.Key, owners[row.Key], row.Owner, o.ID)
				}
			}
		}
		return nil
	}
	snap := eventually(t, c, func(s console.Snapshot) error {
		err := agrees(s)
		if err == nil && !strings.Contains(fmt.Sprint(s.Problems), "<b>no disk</b>") {
			err = fmt.Errorf("%+v", s.Problems)
		}
		return err
	})
	x, _ := of(snap)
	require.Equal(t, evil, x.Table[0].Key)
	require.Positive(t, x.Table[0].Failures)
	require.Regexp(t, "^[abc]: <b>no disk</b>$", x.Table[0].Error)
	require.NotEmpty(t, snap.Events)

	w := httptest.NewRecorder()
	nodes[0].Handler().ServeHTTP(w, httptest.NewRequest("GET", "/info", nil))
	require.Equal(t, 200, w.Code)
	var info inquiry.Report
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &info))
	require.Equal(t, "tenants", info.Partitions[0].Type)

	require.NoError(t, nodes[0].Drain(t.Context()))
	snap = eventually(t, c, func(s console.Snapshot) error {
		x, err := of(s)
		if err == nil && (x.Nodes[0].Shards != 0 || x.Hosted != 6) {
			err = fmt.Errorf("%+v", x)
		}
		return err
	})
	x, _ = of(snap)
	require.NotEmpty(t, x.Recent)
	require.True(t, x.Nodes[0].Draining)
	require.False(t, x.Nodes[0].Hosts)
}
