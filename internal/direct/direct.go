// Package direct lets one process of a node stand for a whole family of actor ids
// that are not registered one by one: messages to them from other nodes reach it
// as they are, in no envelope, with all that is to be known of their way in the
// id.
//
//	holdfast/at/<family>/<rest>       family: two segments; rest: the family's own
//
// A transport that knows of it says so with Enable, and asks Resolve about a
// target that is not registered. Nodes are told by other means which of them can
// be reached like this: to any other such a PID is a dead end.
package direct

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/extension"
)

// Prefix is how all ids begin that are resolved here.
const Prefix = "holdfast/at/"

// ID is the id of what family knows as rest.
func ID(family, rest string) string { return Prefix + family + "/" + rest }

// Resolver returns the process for the rest of an id; false if there is none.
type Resolver func(rest string) (actor.Process, bool)

// Table is the families of one actor system. It is safe for concurrent use.
type Table struct {
	enabled  atomic.Bool
	families sync.Map // of *Resolver
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (t *Table) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the Table of a system.
func Of(system *actor.ActorSystem) *Table {
	return extension.Of(system, extensionID, func() *Table { return &Table{} })
}

// Enable says whether the transport of this system resolves what comes in; before,
// it does not.
func (t *Table) Enable(on bool) { t.enabled.Store(on) }

// Enabled reports what Enable said last.
func (t *Table) Enabled() bool { return t.enabled.Load() }

// Serve has f resolve the ids of a family, in place of whoever did before, until
// stop is called.
func (t *Table) Serve(family string, f Resolver) (stop func()) {
	t.families.Store(family, &f)
	return func() { t.families.CompareAndDelete(family, &f) }
}

// Resolve returns the process that stands for an id.
func (t *Table) Resolve(id string) (actor.Process, bool) {
	rest, ok := strings.CutPrefix(id, Prefix)
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
	f, ok := t.families.Load(rest[:end-1])
	if !ok {
		return nil, false
	}
	return (*f.(*Resolver))(rest[end:])
}
