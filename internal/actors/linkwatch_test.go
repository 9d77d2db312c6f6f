package actors_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// names are the addresses that a watcher of links was told of.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) add(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, address)
}

func (n *names) take() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	slices.Sort(all)
	return all
}

// LinkBroke tells each watcher once, though a subscriber of the EventStream panics.
func TestLinkBrokeTellsWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem()
		system.EventStream.Subscribe(func(any) { panic("a subscriber's bug") })
		var told names
		actors.WatchLinks(system, told.add)
		publish := actors.LinkBroke(system, "b:1")
		require.Equal(t, []string{"b:1"}, told.take())
		require.Panics(t, publish)
		require.Empty(t, told.take())
	})
}

// What others publish of a link reaches who watches; if there is one who makes links, by that.
func TestLinksThatOthersSayBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem()
		var told, heard, cut names
		actors.WatchLinks(system, told.add)
		system.EventStream.Subscribe(func(e any) { heard.add(e.(*remote.EndpointTerminatedEvent).Address) })
		system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: "b:1"})
		require.Equal(t, []string{"b:1"}, told.take())
		require.Equal(t, []string{"b:1"}, heard.take())

		require.False(t, actors.GiveLinkUp(system, "b:1"), "nobody cuts links")
		actors.CutLinks(system, cut.add)
		require.True(t, actors.GiveLinkUp(system, "b:1"))
		require.Equal(t, []string{"b:1"}, cut.take())
		require.Empty(t, heard.take())
		system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: "b:2"})
		require.Equal(t, []string{"b:2"}, cut.take())
		require.Equal(t, []string{"b:2"}, heard.take())
		require.Empty(t, told.take(), "not before it is cut")
		actors.LinkBroke(system, "b:2")()
		require.Equal(t, []string{"b:2"}, told.take())
		require.Equal(t, []string{"b:2"}, heard.take())
		require.Empty(t, cut.take(), "it is cut already")
	})
}
