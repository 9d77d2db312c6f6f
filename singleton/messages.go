package singleton

import (
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
)

// What a manager's actor gets besides mail for the child and messages of other managers (package
// wire); and an event, which is a call of Stop.
type (
	// command runs in a turn of the actor.
	command func()
	// diverted is mail that a gate refused.
	diverted struct {
		gate     *gate.Gate
		envelope any
	}
	// cameBack is mail that was kept for another node, which did not take it.
	cameBack struct{ kept []any }
	// flushMark is posted behind a child's mail when the child is done: when it comes back
	// diverted, so has everything before it.
	flushMark struct{}
)

// hostNoticed: the records name another host, or none.
type hostNoticed struct {
	record lease.Record
	known  bool
	reset  bool // the store's history went back: what was said before does not count
}
