//go:build linux

package scheduler

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// freezer stops a node's guarded actor as SIGSTOP stops a process: wherever it
// happens to be, and without its knowledge. It knows two such places, in the
// middle of a job, and between taking a message from the mailbox and the gate's
// look at the lease. From either the actor goes on after thaw as if nothing had
// been.
type freezer struct {
	mu     sync.Mutex
	strike func(number int) // what happens at the next job; nil: nothing
	thawed chan struct{}    // closed by thaw; nil while not frozen
	last   actor.Mailbox    // of the latest actor
}

// arm makes the node freeze in the middle of the next job; strike is called at
// that moment, and must not block.
func (f *freezer) arm(strike func(number int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.strike = strike
}

// midJob is called in the middle of every job.
func (f *freezer) midJob(number int) {
	f.mu.Lock()
	if f.strike != nil {
		f.thawed = make(chan struct{})
		f.strike(number)
		f.strike = nil
	}
	f.mu.Unlock()
	f.wait()
}

// wait returns when the node is not frozen.
func (f *freezer) wait() {
	f.mu.Lock()
	thawed := f.thawed
	f.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
}

// thaw lets the actor go on; false if it is not frozen. Just before, tell is
// called with how much mail waits in its mailbox; it must not block.
func (f *freezer) thaw(tell func(waiting int)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		return false
	}
	tell(f.last.UserMessageCount())
	close(f.thawed)
	f.thawed = nil
	return true
}

// mailbox makes the guarded actor's mailbox: an ordinary one whose messages
// pass by the freezer on their way to the gate.
func (f *freezer) mailbox() actor.Mailbox {
	m := &freezingMailbox{Mailbox: actor.Unbounded()(), freezer: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = m
	return m
}

type freezingMailbox struct {
	actor.Mailbox
	freezer *freezer
}

// RegisterHandlers implements actor.Mailbox.
func (m *freezingMailbox) RegisterHandlers(gate actor.MessageInvoker, d actor.Dispatcher) {
	m.Mailbox.RegisterHandlers(freezingInvoker{gate, m.freezer}, d)
}

type freezingInvoker struct {
	actor.MessageInvoker
	freezer *freezer
}

func (i freezingInvoker) InvokeSystemMessage(message any) {
	i.freezer.wait()
	i.MessageInvoker.InvokeSystemMessage(message)
}

func (i freezingInvoker) InvokeUserMessage(message any) {
	i.freezer.wait()
	i.MessageInvoker.InvokeUserMessage(message)
}
