package reply

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// lanes hand messages over, in order for each target. Code of the user's runs then: a mailbox,
// a dispatcher, what is to come after a future. Where it hangs, only what is for the same
// target waits; where it ends its goroutine, another one goes on. The zero value is ready, and
// safe for concurrent use.
type lanes struct {
	mu      sync.Mutex
	waiting map[string][]handed // by the target's id; one that is there has a goroutine
}

// mostInLane bounds what waits for one target. One that takes what it gets leaves a few there.
const mostInLane = 10_000

type handed struct {
	to  *actor.PID
	msg any
}

// post hands msg over, or does so behind what waits. What there is no room for is refused.
func (l *lanes) post(system *actor.ActorSystem, to *actor.PID, msg any) {
	if !l.put(system, to, msg) {
		refuse(system, to, msg, "its mailbox has not returned, and too much waits for that")
	}
}

func (l *lanes) put(system *actor.ActorSystem, to *actor.PID, msg any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[string][]handed{}
	}
	before, runs := l.waiting[to.Id]
	if len(before) >= mostInLane {
		return false
	}
	l.waiting[to.Id] = append(before, handed{to, msg})
	if !runs {
		go l.run(system, to.Id)
	}
	return true
}

// run hands over what waits for a target, and ends.
func (l *lanes) run(system *actor.ActorSystem, id string) {
	over := false
	defer func() {
		if !over { // the goroutine was ended
			go l.run(system, id)
		}
	}()
	for h, ok := l.next(id); ok; h, ok = l.next(id) {
		outside.Tell(system, h.to, h.msg)
	}
	over = true
}

// next takes what waits for a target first; false if nothing does.
func (l *lanes) next(id string) (h handed, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.waiting[id]
	if len(all) == 0 {
		delete(l.waiting, id)
		return handed{}, false
	}
	h, all[0] = all[0], handed{}
	l.waiting[id] = all[1:]
	return h, true
}
