package gate

import (
	"sync"
	"sync/atomic"
)

// Counters are totals since New, of the actor and its guarded children.
type Counters struct {
	// Passed: messages, continuations, starts, restarts and notices of
	// termination that were let through.
	Passed uint64
	// Diverted: messages given to Divert or Internal.
	Diverted uint64
	// DeadLettered: messages to guarded children that were refused.
	DeadLettered uint64
	// Withheld: what was refused and can't be diverted: continuations, starts,
	// restarts, notices of termination and of failure, and nil messages.
	Withheld uint64
	// Overruns: passes whose handler was still running when the gate was lost.
	// A lower bound: a handler that returned before the end was noticed (the
	// timer was late) is not among them.
	Overruns uint64
}

// Counters returns the present totals.
func (g *Gate) Counters() Counters {
	t := g.totals
	return Counters{
		Passed:       t.passes(),
		Diverted:     t.diverted.Load(),
		DeadLettered: t.deadLettered.Load(),
		Withheld:     t.withheld.Load(),
		Overruns:     t.overruns.Load(),
	}
}

// totals is what a gate's mailboxes count together. Passes, the frequent ones,
// are counted by each mailbox alone, so that they don't contend.
type totals struct {
	diverted, deadLettered, withheld, overruns atomic.Uint64

	mu     sync.Mutex
	live   map[*mailbox]struct{}
	passed uint64 // by mailboxes that are not in live any more
}

func (t *totals) passes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.passed
	for m := range t.live {
		sum += m.passed.Load()
	}
	return sum
}

// enlist counts m's passes from now on.
func (t *totals) enlist(m *mailbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[m] = struct{}{}
}

// discharge keeps m's passes and forgets m.
func (t *totals) discharge(m *mailbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.live[m]; ok {
		delete(t.live, m)
		t.passed += m.passed.Load()
	}
}
