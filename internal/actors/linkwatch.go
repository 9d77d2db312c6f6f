package actors

import (
	"maps"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"
)

// links tell of links of one actor system that broke.
type links struct {
	mu      sync.Mutex
	told    map[*int]func(address string)
	passing map[*remote.EndpointTerminatedEvent]bool // they were told of already
	cut     func(address string)                     // nil: nothing here makes links
}

var linksID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*links) ExtensionID() extensions.ExtensionID { return linksID }

func linksOf(system *actor.ActorSystem) *links {
	return Extension(system, linksID, func() *links {
		l := &links{told: map[*int]func(string){}, passing: map[*remote.EndpointTerminatedEvent]bool{}}
		system.EventStream.Subscribe(l.onPublished) // for the system's life
		return l
	})
}

// WatchLinks tells f of every address that system's link to broke, until stop. f must not block: it
// is called before the next link can be used.
func WatchLinks(system *actor.ActorSystem, f func(address string)) (stop func()) {
	l := linksOf(system)
	key := new(int)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[key] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.told, key)
	}
}

// LinkBroke is for the maker of links: it tells watchers that the link to address broke,
// whatever subscribers of the EventStream do. They hear of it by what it returns.
func LinkBroke(system *actor.ActorSystem, address string) (publish func()) {
	l := linksOf(system)
	l.tell(address)
	return func() {
		e := &remote.EndpointTerminatedEvent{Address: address}
		l.pass(e, true)
		defer l.pass(e, false)
		system.EventStream.Publish(e)
	}
}

// CutLinks has cut called, on a goroutine of its own, with the address of a link that a publisher
// on the EventStream gives up, as a user may, or GiveLinkUp, and not the link itself. It is to end
// in LinkBroke.
func CutLinks(system *actor.ActorSystem, cut func(address string)) {
	l := linksOf(system)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// GiveLinkUp has cut called for the link to address, on a goroutine of its own, whatever subscribers
// of the EventStream do: they hear of it in LinkBroke. It is false if CutLinks was not called.
func GiveLinkUp(system *actor.ActorSystem, address string) bool {
	l := linksOf(system)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutLocked(address)
}

func (l *links) pass(e *remote.EndpointTerminatedEvent, begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if begins {
		l.passing[e] = true
	} else {
		delete(l.passing, e)
	}
}

// onPublished runs inside of Publish, so it must neither block nor publish.
func (l *links) onPublished(evt any) {
	e, ok := evt.(*remote.EndpointTerminatedEvent)
	if !ok {
		return
	}
	l.mu.Lock()
	known := l.passing[e] || l.cutLocked(e.Address)
	l.mu.Unlock()
	if !known {
		l.tell(e.Address)
	}
}

func (l *links) cutLocked(address string) bool {
	if l.cut == nil {
		return false
	}
	go l.cut(address)
	return true
}

func (l *links) tell(address string) {
	l.mu.Lock()
	told := slices.Collect(maps.Values(l.told))
	l.mu.Unlock()
	for _, f := range told {
		f(address)
	}
}
