package actors

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"
)

// links tell of links of one actor system that broke.
type links struct {
	mu      sync.Mutex
	told    map[*int]func(address string)
	cut     func(address string) // nil: nothing here makes links
	passing sync.Map             // events of links that were told of already
	failed  map[string]failure   // by address: links that could not be made
}

var linksID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*links) ExtensionID() extensions.ExtensionID { return linksID }

func linksOf(system *actor.ActorSystem) *links {
	return Extension(system, linksID, func() *links {
		l := &links{told: map[*int]func(string){}, failed: map[string]failure{}}
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
		l.passing.Store(e, nil)
		defer l.passing.Delete(e)
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
	return linksOf(system).giveUp(address)
}

// failure is why the link to an address could not be made at the last attempt.
type failure struct {
	since, last time.Time
	why         string
}

// forgetFailure is for how long a failed attempt counts: while there is mail, others follow.
const forgetFailure = 2 * time.Minute

// LinkTried notes that the link to address was made, or why not.
func LinkTried(system *actor.ActorSystem, address string, err error) {
	l, now := linksOf(system), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.failed, func(_ string, f failure) bool { return now.Sub(f.last) > forgetFailure })
	f, again := l.failed[address]
	if delete(l.failed, address); err == nil {
		return
	}
	if f.last, f.why = now, fmt.Sprintf("%.256v", err); !again {
		f.since = now
	}
	l.failed[address] = f
}

// Unreached returns the addresses to which no link could be made lately: since when, and why.
func Unreached(system *actor.ActorSystem) map[string]string {
	l, all := linksOf(system), map[string]string{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for address, f := range l.failed {
		if time.Since(f.last) <= forgetFailure {
			all[address] = fmt.Sprintf("%s: %s", f.since.Format(time.RFC3339), f.why)
		}
	}
	return all
}

// onPublished runs inside of Publish, so it must neither block nor publish.
func (l *links) onPublished(evt any) {
	e, ok := evt.(*remote.EndpointTerminatedEvent)
	if !ok {
		return
	}
	if _, known := l.passing.Load(e); !known && !l.giveUp(e.Address) {
		l.tell(e.Address)
	}
}

func (l *links) giveUp(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
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
