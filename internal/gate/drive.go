package gate

import (
	"errors"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outside"
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
	aside   bool   // Options.Aside, for a dispatcher of a user's
	failed  atomic.Bool
}

func newDriver(d actor.Dispatcher, m *mailbox, aside bool) *driver {
	v := &driver{Dispatcher: d, mailbox: m, aside: aside}
	v.drive = func() { v.guard(v.run) }
	return v
}

// Schedule implements actor.Dispatcher.
func (d *driver) Schedule(run func()) {
	if d.aside {
		d.scheduleAside(run)
		return
	}
	d.run = run
	d.Dispatcher.Schedule(d.drive)
}

// scheduleAside has the user's dispatcher run the mailbox, and does so itself where that
// fails: nobody would again, and an actor that does not run can't be stopped either.
func (d *driver) scheduleAside(run func()) {
	var begun atomic.Bool // one that fails may have run it, or may yet
	drive := func() {
		if begun.CompareAndSwap(false, true) {
			d.guard(run)
		}
	}
	schedule := func() (struct{}, error) { d.Dispatcher.Schedule(drive); return struct{}{}, nil }
	outside.Aside(schedule, func(_ struct{}, err error) {
		if err == nil {
			return
		}
		go drive()
		if d.failed.CompareAndSwap(false, true) {
			_ = outside.Call(func() error {
				d.mailbox.log("gate: the dispatcher of the Props failed, the actor is run without", err)
				return nil
			})
		}
	})
}

// Throughput implements actor.Dispatcher.
func (d *driver) Throughput() int {
	if !d.aside {
		return d.Dispatcher.Throughput()
	}
	n, err := outside.Get(func() (int, error) { return d.Dispatcher.Throughput(), nil })
	if err != nil {
		return throughput
	}
	return n
}

// throughput is that of a dispatcher which can't say.
const throughput = 300

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
