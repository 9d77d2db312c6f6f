package gate

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// inbox is the mailbox behind a gate. It does what
// actor.Unbounded does, for less: its goroutine takes what was posted by the batch, so that
// one lock is enough for many messages, and senders rarely meet it there. Mail takes no
// memory but its place; a burst's is given back, to the next inbox that needs it.
//
// What is posted under mu is taken in that order; system messages go before users'
// messages, all that there are.
type inbox struct {
	mu      sync.Mutex
	full    [][]letter // before in, each of chunk
	in      []letter
	system  []any
	running bool // the goroutine runs, or is about to
	_       [64]byte

	urgent  atomic.Bool  // there is something in system
	left    atomic.Int64 // of out
	out     []letter     // of the goroutine alone, as what follows
	at      int
	halted  bool // by SuspendMailbox
	invoker actor.MessageInvoker
	gate    *mailbox // the same, if it is one
	actor.Dispatcher
	work func() // made once
}

// letter is a message in an inbox.
type letter struct {
	message any
	front   bool
}

const (
	chunk    = 1024 // how much is taken at once, at most
	least    = 2    // room for messages, to begin with
	mostOwn  = 128  // beyond which room is borrowed, for a chunk
	mostIdle = 16   // which is kept where none waits
)

// chunks are the rooms of past bursts.
var chunks = sync.Pool{New: func() any { return new([chunk]letter) }}

// roomier returns room for a chunk with what is in b.
func roomier(b []letter) []letter { return append(chunks.Get().(*[chunk]letter)[:0], b...) }

// idle returns what is kept of b where none waits.
func idle(b []letter) []letter {
	if b = giveBack(b); cap(b) > mostIdle {
		return nil
	}
	return b
}

// giveBack returns b, emptied, for what comes next; nothing if it was borrowed. All of it was taken.
func giveBack(b []letter) []letter {
	if cap(b) < chunk {
		return b[:0]
	}
	chunks.Put((*[chunk]letter)(b[:chunk]))
	return nil
}

func newInbox() *inbox {
	b := &inbox{}
	b.work = b.process
	return b
}

// RegisterHandlers implements actor.Mailbox.
func (b *inbox) RegisterHandlers(invoker actor.MessageInvoker, d actor.Dispatcher) {
	b.invoker, b.Dispatcher = invoker, d
	b.gate, _ = invoker.(*mailbox)
}

// UserMessageCount implements actor.Mailbox.
func (b *inbox) UserMessageCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.left.Load()) + len(b.full)*chunk + len(b.in)
}

// PostUserMessage implements actor.Mailbox. The messages of a batch go before it.
func (b *inbox) PostUserMessage(message any) {
	if batch, ok := actor.UnwrapEnvelopeMessage(message).(actor.MessageBatch); ok {
		for _, m := range batch.GetMessages() {
			b.PostUserMessage(m)
		}
	}
	b.post(letter{message: message})
}

// post queues a message. One from the front door is for a gate, and is one message whatever
// is in it.
func (b *inbox) post(l letter) {
	b.mu.Lock()
	switch {
	case b.in == nil:
		b.in = make([]letter, 0, least)
	case len(b.in) == chunk:
		b.full = append(b.full, b.in)
		b.in = roomier(nil)
	case len(b.in) >= mostOwn && len(b.in) == cap(b.in):
		b.in = roomier(b.in)
	}
	b.in = append(b.in, l)
	b.wake()
}

// PostSystemMessage implements actor.Mailbox.
func (b *inbox) PostSystemMessage(message any) {
	b.mu.Lock()
	b.system = append(b.system, message)
	b.urgent.Store(true)
	b.wake()
}

// wake unlocks mu, and has the goroutine run.
func (b *inbox) wake() {
	idle := !b.running
	b.running = true
	b.mu.Unlock()
	if idle {
		b.Schedule(b.work)
	}
}

// process is what the goroutine does until nothing is left that it may take.
func (b *inbox) process() {
	for !b.run() {
	}
}

// run takes messages until nothing is left; false if a handler panicked.
func (b *inbox) run() (done bool) {
	var message any
	defer func() {
		if !done {
			if p := recover(); p != nil {
				b.invoker.EscalateFailure(p, message)
			}
		}
	}()
	for n, most := 0, b.Throughput(); ; n++ {
		if n > most {
			n = 0
			runtime.Gosched()
		}
		if b.urgent.Load() {
			message = b.nextSystem()
			switch message.(type) {
			case nil:
			case *actor.SuspendMailbox:
				b.halted = true
			case *actor.ResumeMailbox:
				b.halted = false
			default:
				b.invoker.InvokeSystemMessage(message)
			}
			continue
		}
		if b.halted || b.at == len(b.out) {
			if b.rest() {
				return true
			}
			continue
		}
		next := &b.out[b.at]
		front := next.front
		message, *next = next.message, letter{}
		b.at++
		b.left.Store(int64(len(b.out) - b.at))
		if front {
			b.gate.invoke(message, true)
		} else {
			b.invoker.InvokeUserMessage(message)
		}
	}
}

// nextSystem takes a message of the system's; nil if there is none.
func (b *inbox) nextSystem() (message any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.system) > 0 {
		message = b.system[0]
		b.system[0] = nil
		b.system = b.system[1:]
	}
	if len(b.system) == 0 {
		b.system = nil
		b.urgent.Store(false)
	}
	return message
}

// rest takes the next batch; true if there is none that may be taken: the goroutine ends.
func (b *inbox) rest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.system) > 0:
		return false
	case b.halted:
		b.running = false
		return true
	case len(b.full) > 0:
		giveBack(b.out)
		b.out, b.full[0] = b.full[0], nil
		b.full = b.full[1:]
	case len(b.in) > 0:
		b.out, b.in = b.in, b.out[:0]
	default:
		b.in, b.out = idle(b.in), idle(b.out)
		b.full = nil
		b.at, b.running = 0, false
		return true
	}
	b.at = 0
	b.left.Store(int64(len(b.out)))
	return false
}
