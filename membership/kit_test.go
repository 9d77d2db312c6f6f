package membership_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// world is some nodes on one store, on fake time.
type world struct {
	t     *testing.T
	store *memory.Store
	ends  []func()
}

// bubble runs a test on fake time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: memory.New()}
		defer func() {
			for _, end := range slices.Backward(w.ends) {
				end()
			}
		}()
		f(t, w)
	})
}

// node is one Keeper with its own clock and its own, disturbable way to the store,
// and what was told there.
type node struct {
	w      *world
	id     string
	system *actor.ActorSystem
	keeper *lease.Keeper
	clock  *faultclock.Clock
	store  *faultstore.Store

	group    *membership.Group
	election *membership.Election
	members  tape[membership.MembersChanged]
	leaders  tape[membership.LeaderChanged]
	stream   tape[any] // of the EventStream
}

// tape keeps what was told, in order.
type tape[T any] struct {
	mu   sync.Mutex
	told []T
	hook func(T) // after it is kept; may block
}

func (p *tape[T]) add(x T) {
	p.mu.Lock()
	p.told = append(p.told, x)
	hook := p.hook
	p.mu.Unlock()
	if hook != nil {
		hook(x)
	}
}

func (p *tape[T]) all() []T {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

func (p *tape[T]) last() (x T) {
	if all := p.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return x
}

// node makes a node that has not joined.
func (w *world) node(id string, change ...func(*lease.Config)) *node {
	w.t.Helper()
	return w.nodeOn(w.store, id, change...)
}

func (w *world) nodeOn(store store.Store, id string, change ...func(*lease.Config)) *node {
	w.t.Helper()
	n := &node{w: w, id: id, clock: faultclock.New(), store: faultstore.Wrap(store)}
	n.system = actor.NewActorSystem(remoting.LogTo(nil))
	n.system.ProcessRegistry.Address = id + ":1"
	n.system.EventStream.Subscribe(n.stream.add)
	cfg := lease.Config{ID: id, Address: id + ":1", TTL: ttl, Clock: n.clock}
	for _, f := range change {
		f(&cfg)
	}
	k, err := lease.NewKeeper(n.store, cfg)
	require.NoError(w.t, err)
	n.keeper = k
	w.ends = append(w.ends, func() {
		n.heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if n.group != nil {
			_ = n.group.Leave(ctx)
		}
		_ = k.Close(ctx)
		n.store.Wait()
	})
	return n
}

// join makes it a member of "g" that follows the members.
func (n *node) join(opts ...membership.Option) *node {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(n.w.t.Context(), time.Minute)
	defer cancel()
	g, err := membership.Join(ctx, n.keeper, "g", append([]membership.Option{membership.WithEvents(hosting.ToEventStream(n.system))}, opts...)...)
	require.NoError(n.w.t, err)
	n.group = g
	g.Follow(n.members.add)
	synctest.Wait()
	return n
}

// stand makes it follow the leader, and stand.
func (n *node) stand() *node {
	n.w.t.Helper()
	e, err := n.group.Leadership()
	require.NoError(n.w.t, err)
	n.election = e
	e.Follow(n.leaders.add)
	synctest.Wait()
	return n
}

// member is a node that has joined and stands.
func (w *world) member(id string, opts ...membership.Option) *node {
	w.t.Helper()
	return w.node(id).join(opts...).stand()
}

// crash makes the node vanish as a killed process does.
func (n *node) crash() {
	n.clock.Freeze()
	n.store.Partition()
}

func (n *node) heal() {
	n.store.SetRule(nil)
	n.store.Heal()
	n.clock.Thaw()
}

func (n *node) announce() {
	n.w.t.Helper()
	require.NoError(n.w.t, n.group.AnnounceLeaving(n.w.t.Context()))
	synctest.Wait()
}

func (n *node) leave() {
	n.w.t.Helper()
	require.NoError(n.w.t, n.group.Leave(n.w.t.Context()))
	synctest.Wait()
}

// leads reports whether it believes that it leads.
func (n *node) leads() bool {
	_, self := n.election.Leader()
	return self
}

// sees says whom it lists: their IDs, with a star for itself and a minus for those
// that leave.
func (n *node) sees() string {
	synctest.Wait()
	var s []string
	for _, m := range n.group.Members().Members {
		id := m.ID
		if m.Leaving {
			id = "-" + id
		}
		if m.IsSelf {
			id += "*"
		}
		s = append(s, id)
	}
	return strings.Join(s, " ")
}

// story is what was told of leaders: their IDs, a dot for nobody, a star for itself.
// That nobody led at first, as may be told or not, is left out.
func (n *node) story() string {
	var s []string
	for _, c := range n.leaders.all() {
		s = append(s, leaderText(c))
	}
	if len(s) > 1 && s[0] == "." {
		s = s[1:]
	}
	return strings.Join(s, " ")
}

func leaderText(c membership.LeaderChanged) string {
	text := "."
	if c.Leader.Incarnation != "" {
		text = c.Leader.ID
	}
	if c.IsSelf {
		text += "*"
	}
	if c.Skipped > 0 {
		text += fmt.Sprintf("(+%d)", c.Skipped)
	}
	return text
}

// until waits for a condition, at most d.
func until(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

// standing returns the names of all records.
func (w *world) standing() (names []string) {
	w.t.Helper()
	for rec, err := range w.store.List(context.Background(), store.Query{}) {
		require.NoError(w.t, err)
		names = append(names, rec.Name)
	}
	slices.Sort(names)
	return names
}

// of picks the events of one type from an EventStream.
func of[T any](events []any) (found []T) {
	for _, ev := range events {
		if x, ok := ev.(T); ok {
			found = append(found, x)
		}
	}
	return found
}

// watch records from now on which records come and go in the store, as +name and
// -name.
func (w *world) watch() (history func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	w.ends = append(w.ends, cancel)
	var seen tape[string]
	go func() {
		synced := false
		for ev, err := range w.store.Watch(ctx, store.Scope{}) {
			switch {
			case err != nil:
				return
			case ev.Kind == store.EventSynced:
				synced = true
			case synced && ev.Kind == store.EventPut:
				seen.add("+" + ev.Record.Name)
			case synced:
				seen.add("-" + ev.Record.Name)
			}
		}
	}()
	synctest.Wait()
	return seen.all
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
