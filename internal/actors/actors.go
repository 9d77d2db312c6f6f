// Package actors is what protoactor's actor systems lack for this module.
//
//	Extension    one value of a kind for an actor system
//	Families     one process that stands for a family of actor ids
//	WatchLinks   tells of links to other nodes that broke
//	AfterShutdown
//	             tells of the end of an actor system
//
// A process of Families need not register each id: messages to the ids from other nodes
// reach it as they are, in no envelope, with all that their way needs in the id.
//
//	holdfast/at/<family>/<rest>       family: two segments; rest: the family's own
//
// A transport that knows of it says so with Enable, and asks Resolve about a target that is
// not registered. Nodes learn by other means which nodes can be reached like this: at any
// other node such a PID is a dead end.
package actors

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/store"
)

// NoAddress is what protoactor calls a system without remote.
const NoAddress = "nonhost"

// CheckAddress returns an error unless the address of a Keeper is that of its system, or both have
// none.
func CheckAddress(system *actor.ActorSystem, keeper string) error {
	if is := system.Address(); is != keeper && (is != NoAddress || keeper != "") {
		return fmt.Errorf("the keeper's address (lease.Config.Address) is %q, must be the actor system's, %q: start remote before", keeper, is)
	}
	return nil
}

// extending guards the table of extensions of every actor system, which is not safe for
// concurrent use by itself.
var extending sync.Mutex

// Extension returns the extension of system with that id; if it has none, what create
// returns from now on. create must not call Extension. Safe for concurrent use.
func Extension[T extensions.Extension](system *actor.ActorSystem, id extensions.ExtensionID, create func() T) T {
	extending.Lock()
	defer extending.Unlock()
	if x, ok := system.Extensions.Get(id).(T); ok {
		return x
	}
	x := create()
	system.Extensions.Register(x)
	return x
}

// AfterShutdown calls f once system was shut down, unless stop is called before. protoactor publishes nothing
// then: it is looked for each second.
func AfterShutdown(system *actor.ActorSystem, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var look func()
	look = func() {
		switch {
		case ctx.Err() != nil:
		case system.IsStopped():
			f()
		default:
			time.AfterFunc(time.Second, look)
		}
	}
	look()
	return cancel
}

// Alarm is a timer of a loop: its function runs in a turn of that loop, and no more once the
// Alarm was stopped or set again. The zero value is not set. It belongs to the loop.
type Alarm struct {
	timer store.Timer   // nil: it is not set
	turn  int64         // of turns, when it was set
	at    time.Duration // by SetBy
}

// turns counts how often any Alarm was set: one that its owner zeroed takes no turn twice.
var turns atomic.Int64

// Set has post, which may be called on any goroutine, get f after d.
func (a *Alarm) Set(clock store.Clock, post func(func()), d time.Duration, f func()) {
	a.Stop()
	turn := turns.Add(1)
	a.turn = turn
	a.timer = clock.AfterFunc(d, func() {
		post(func() {
			if a.Pending() && a.turn == turn {
				a.timer = nil
				f()
			}
		})
	})
}

// SetBy is Set, unless the Alarm is set for at or an earlier time already; now is the same clock's.
func (a *Alarm) SetBy(clock store.Clock, post func(func()), now, at time.Duration, f func()) {
	if !a.Pending() || a.at > at {
		a.Set(clock, post, at-now, f)
		a.at = at
	}
}

// Stop ends it.
func (a *Alarm) Stop() {
	if a.Pending() {
		a.timer.Stop()
		a.timer = nil
	}
}

// Pending reports whether it is set.
func (a *Alarm) Pending() bool { return a.timer != nil }

// Backoff is the pause after n tries: it doubles from least to most, with jitter.
func Backoff(n int, least, most time.Duration) time.Duration {
	d := most
	if n < 30 && least<<n < d {
		d = least << n
	}
	return d/2 + rand.N(d/2+1)
}

// Footprint is about what a message of this node takes in memory, in bytes, at least. It
// calls no users' code.
func Footprint(local any) (n int) {
	n = HeaderSize(local)
	switch m := actor.UnwrapEnvelopeMessage(local).(type) {
	case nil:
	case string:
		n += len(m)
	case []byte:
		n += len(m)
	case proto.Message:
		n += protoSize(m)
	default:
		n += footprint(reflect.ValueOf(m))
	}
	return n
}

// HeaderSize is what the headers and the sender of a message take, in bytes.
func HeaderSize(local any) (n int) {
	e, ok := local.(*actor.MessageEnvelope)
	if !ok || e == nil {
		return 0
	}
	return HeadersSize(e.Header) + len(e.Sender.GetAddress()) + len(e.Sender.GetId())
}

// HeadersSize is what headers take, in bytes.
func HeadersSize(headers map[string]string) (n int) {
	for k, v := range headers {
		n += len(k) + len(v) + 8
	}
	return n
}

func protoSize(m proto.Message) (n int) {
	defer func() { _ = recover() }() // a nil pointer, or one that only embeds a message
	return proto.Size(m)
}

// footprint looks at what is in the value itself, and at lengths. What it points to may
// be changed by others meanwhile, and is taken to be as large as its type.
func footprint(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Invalid:
		return 0
	case reflect.String:
		return 16 + v.Len()
	case reflect.Pointer:
		return 8 + int(v.Type().Elem().Size())
	case reflect.Slice:
		return 24 + v.Len()*int(v.Type().Elem().Size())
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += footprint(v.Field(i))
		}
		return n
	}
	return int(v.Type().Size())
}

// FamilyPrefix is how the ids of all families begin.
const FamilyPrefix = "holdfast/at/"

// FamilyID is the id of what family knows as rest.
func FamilyID(family, rest string) string { return FamilyPrefix + family + "/" + rest }

// Resolver returns the process for the rest of an id; false if there is none.
type Resolver func(rest string) (actor.Process, bool)

// Families are the id families of one actor system. It is safe for concurrent use.
type Families struct {
	enabled  atomic.Bool
	families sync.Map // of *Resolver
}

var familiesID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (f *Families) ExtensionID() extensions.ExtensionID { return familiesID }

// FamiliesOf returns the Families of a system.
func FamiliesOf(system *actor.ActorSystem) *Families {
	return Extension(system, familiesID, func() *Families { return &Families{} })
}

// Enable says whether the transport of this system resolves what comes in; before,
// it does not.
func (f *Families) Enable(on bool) { f.enabled.Store(on) }

// Enabled reports what Enable said last.
func (f *Families) Enabled() bool { return f.enabled.Load() }

// Serve has r resolve the ids of a family, in place of an earlier resolver, until
// stop is called.
func (f *Families) Serve(family string, r Resolver) (stop func()) {
	f.families.Store(family, &r)
	return func() { f.families.CompareAndDelete(family, &r) }
}

// Resolve returns the process that stands for an id.
func (f *Families) Resolve(id string) (actor.Process, bool) {
	rest, ok := strings.CutPrefix(id, FamilyPrefix)
	if !ok {
		return nil, false
	}
	end := 0
	for range 2 {
		n := strings.IndexByte(rest[end:], '/')
		if n < 0 {
			return nil, false
		}
		end += n + 1
	}
	r, ok := f.families.Load(rest[:end-1])
	if !ok {
		return nil, false
	}
	return (*r.(*Resolver))(rest[end:])
}

// links tell of links of one actor system that broke.
type links struct {
	mu      sync.Mutex
	told    []func(address string)
	cut     func(address string) // nil: nothing here makes links
	passing sync.Map             // events of links that were told of already
	failed  map[string]failure   // by address: links that could not be made
}

var linksID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*links) ExtensionID() extensions.ExtensionID { return linksID }

func linksOf(system *actor.ActorSystem) *links {
	return Extension(system, linksID, func() *links {
		l := &links{failed: map[string]failure{}}
		system.EventStream.Subscribe(l.onPublished) // for the system's life
		return l
	})
}

// WatchLinks tells f of every address that system's link to broke. f must not block: it is called
// before the next link can be used.
func WatchLinks(system *actor.ActorSystem, f func(address string)) {
	l := linksOf(system)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, f)
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
	told := slices.Clone(l.told)
	l.mu.Unlock()
	for _, f := range told {
		f(address)
	}
}
