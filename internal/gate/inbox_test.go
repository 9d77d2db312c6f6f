package gate

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// NewMailbox makes the mailbox of a guarded actor.
func NewMailbox(g *Gate) actor.Mailbox { return newMailbox(g, false) }

// took is what an inbox handed over, on its goroutine.
type took struct {
	all    []any
	failed []any
	on     func(message any)
}

func (k *took) InvokeUserMessage(message any)       { k.all = append(k.all, message); k.on(message) }
func (k *took) InvokeSystemMessage(message any)     { k.all = append(k.all, message); k.on(message) }
func (k *took) EscalateFailure(reason, message any) { k.failed = append(k.failed, message) }

type (
	posted struct{ by, n int }
	batch  []any
)

func (b batch) GetMessages() []any { return b }

func newTook(on func(any)) (*took, *inbox) {
	b := newInbox()
	k := &took{on: on}
	b.RegisterHandlers(k, actor.NewDefaultDispatcher(300))
	return k, b
}

// What each of several senders posts is taken once and in its order, whatever batches it
// comes in, whatever fails, and whatever the goroutine is held up by.
func TestInboxKeepsOrder(t *testing.T) {
	const senders, each = 4, 5000
	var all sync.WaitGroup
	all.Add(senders * each)
	pause := make(chan struct{}, 16)
	k, b := newTook(func(message any) {
		defer all.Done()
		switch rand.IntN(500) {
		case 0:
			<-pause // a backlog of several chunks
		case 1:
			panic("of a handler")
		}
	})
	over := make(chan struct{})
	go func() {
		for {
			select {
			case pause <- struct{}{}:
				runtime.Gosched()
			case <-over:
				return
			}
		}
	}()
	for s := range senders {
		go func() {
			for n := range each {
				b.PostUserMessage(posted{s, n})
				if rand.IntN(100) == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	all.Wait()
	close(over)
	for b.UserMessageCount() != 0 || b.runs() {
		runtime.Gosched()
	}
	var next [senders]int
	for _, m := range k.all {
		p := m.(posted)
		require.Equal(t, next[p.by], p.n)
		next[p.by]++
	}
	require.Equal(t, [senders]int{each, each, each, each}, next)
	require.LessOrEqual(t, cap(b.in)+cap(b.out), 2*mostIdle, "the memory of the burst is given back")
}

func (b *inbox) runs() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// The system's messages go before the next of users, also while these wait for a
// ResumeMailbox; the messages of a batch go before it.
func TestInboxGoesBySystemMessagesFirst(t *testing.T) {
	held, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	k, b := newTook(func(message any) {
		switch message {
		case "first":
			close(held)
			<-goOn
		case "last":
			close(done)
		}
	})
	b.PostUserMessage("first")
	<-held
	b.PostUserMessage("second")
	b.PostSystemMessage(&actor.SuspendMailbox{})
	b.PostSystemMessage("system")
	require.Equal(t, 1, b.UserMessageCount())
	close(goOn)
	for b.runs() {
		runtime.Gosched()
	}
	require.Equal(t, []any{"first", "system"}, k.all)
	b.PostUserMessage(&actor.MessageEnvelope{Message: batch{1, 2}})
	for b.runs() {
		runtime.Gosched()
	}
	require.Equal(t, 4, b.UserMessageCount())
	require.Len(t, k.all, 2)
	b.PostSystemMessage(&actor.ResumeMailbox{})
	b.PostUserMessage("last")
	<-done
	require.Equal(t, []any{"first", "system", "second", 1, 2, &actor.MessageEnvelope{Message: batch{1, 2}}, "last"}, k.all)
}

// What is counted is what waits, whichever chunk it waits in.
func TestInboxCountsWaitingMail(t *testing.T) {
	step := make(chan struct{})
	handling := make(chan struct{})
	_, b := newTook(func(any) { handling <- struct{}{}; <-step })
	const n = 3*chunk + 7
	for i := range n {
		b.PostUserMessage(i)
	}
	for i := range n {
		<-handling
		require.Equal(t, n-1-i, b.UserMessageCount())
		step <- struct{}{}
	}
}

func TestOneCallerCausesAChange(t *testing.T) {
	var s state
	var moved atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s.raise(Draining)
			if _, ok := s.raise(Lost); ok {
				moved.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, moved.Load())
	_, back := s.raise(Draining)
	assert.False(t, back)
	assert.Equal(t, Lost, s.mode())
}
