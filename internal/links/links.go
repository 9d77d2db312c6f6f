// Package links tells of connections between nodes that broke.
package links

import (
	"maps"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/extension"
)

// watchers are those of one actor system.
type watchers struct {
	mu   sync.Mutex
	told map[*int]func(address string)
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*watchers) ExtensionID() extensions.ExtensionID { return extensionID }

// Watch tells f, on a goroutine of its own, of every address that system's link to
// broke, until stop.
func Watch(system *actor.ActorSystem, f func(address string)) (stop func()) {
	w := extension.Of(system, extensionID, func() *watchers {
		w := &watchers{told: map[*int]func(string){}}
		system.EventStream.Subscribe(w.onPublished) // for the system's life
		return w
	})
	key := new(int)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[key] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.told, key)
	}
}

// onPublished runs inside of Publish, so it must neither block nor publish.
func (w *watchers) onPublished(evt any) {
	e, ok := evt.(*remote.EndpointTerminatedEvent)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) > 0 {
		go func(told []func(string)) {
			for _, f := range told {
				f(e.Address)
			}
		}(slices.Collect(maps.Values(w.told)))
	}
}
