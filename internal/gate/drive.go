package gate

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// driver is a dispatcher of a user's that is called on a goroutine of its own (Options.Aside):
// who posts may hold a lock, and it may run the mailbox where it is called.
type driver struct {
	actor.Dispatcher
	mailbox *mailbox
	failed  atomic.Bool
}

// Schedule implements actor.Dispatcher. It has the user's dispatcher run the mailbox, and does so
// itself where that panics: an actor that does not run can't be stopped either.
func (d *driver) Schedule(run func()) {
	var begun atomic.Bool // one that panics may have run it, or may yet
	drive := func() {
		if begun.CompareAndSwap(false, true) {
			run()
		}
	}
	schedule := func() (struct{}, error) { d.Dispatcher.Schedule(drive); return struct{}{}, nil }
	boundary.Aside(schedule, func(_ struct{}, err error) {
		if err == nil {
			return
		}
		if d.failed.CompareAndSwap(false, true) {
			d.mailbox.log("gate: the dispatcher of the Props failed, the actor is run without", err)
		}
		drive()
	})
}
