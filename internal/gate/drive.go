package gate

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// driver calls a dispatcher of the Props, other than protoactor's default, on a goroutine of its own:
// the sender may hold a lock, and the dispatcher may run the mailbox where it is called.
type driver struct {
	actor.Dispatcher
	mailbox *mailbox
	failed  atomic.Bool
}

// Schedule implements actor.Dispatcher. The Props' dispatcher runs the mailbox; if it panics, the
// driver runs it, because an actor that does not run can't be stopped either.
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
