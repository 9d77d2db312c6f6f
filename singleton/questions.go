package singleton

import (
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is the questions that are under way to hosts: whose link breaks is told at
// once that no answer is to be expected.

// unconfirmed is the answer to a question whose link broke.
type unconfirmed struct{}

// questions are those of a Manager that have not ended.
type questions struct {
	mu  sync.Mutex
	all map[*question]struct{}
}

// note adds q, until the returned function is called.
func (a *questions) note(q *question) (over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[*question]struct{}{}
	}
	a.all[q] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.all, q)
	}
}

// broken answers those that were sent to address.
func (a *questions) broken(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for q := range a.all {
		if to := q.went.Load(); to != nil && *to == address {
			q.giveUp()
		}
	}
}

// giveUp has the asker go on, unless there is an answer.
func (q *question) giveUp() {
	if q.over.CompareAndSwap(false, true) {
		q.answer <- unconfirmed{}
	}
}

// sent notes where a question of this node went.
func (p *proxy) sent(address string, e *wire.Envelope) {
	sender := e.GetSender().PID()
	if sender == nil || sender.Address != p.system.Address() || !strings.HasPrefix(sender.Id, wire.AskPrefix) {
		return
	}
	process, _ := p.system.ProcessRegistry.GetLocal(sender.Id)
	if q, ok := process.(*question); ok {
		q.went.Store(&address)
	}
}
