package actors

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
)

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
