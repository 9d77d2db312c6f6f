package gate

import (
	"errors"

	"github.com/asynkron/protoactor-go/actor"
)

// errEnded is the failure of a handler that ended its goroutine.
var errEnded = errors.New("gate: the handler ended its goroutine (runtime.Goexit)")

// driver is a dispatcher that runs a mailbox on where a handler has ended the goroutine:
// protoactor would never run it again. Such a handler has failed, as by a panic. A mailbox
// is scheduled only when it does not run, so one field is enough for what is to run.
type driver struct {
	actor.Dispatcher
	mailbox *mailbox
	run     func()
	drive   func() // made once, so that the gate costs no allocation
}

func newDriver(d actor.Dispatcher, m *mailbox) *driver {
	v := &driver{Dispatcher: d, mailbox: m}
	v.drive = func() { v.guard(v.run) }
	return v
}

// Schedule implements actor.Dispatcher.
func (d *driver) Schedule(run func()) {
	d.run = run
	d.Dispatcher.Schedule(d.drive)
}

func (d *driver) guard(run func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			panic(p) // not of a handler: protoactor has seen to those
		}
		d.Schedule(func() {
			d.mailbox.EscalateFailure(errEnded, nil)
			run()
		})
	}()
	run()
	returned = true
}
