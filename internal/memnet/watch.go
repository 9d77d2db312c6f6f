package memnet

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
)

// notice is an AddressTerminated that a watcher is owed; without a watcher it is
// what remote publishes on the event stream when it gives an address up.
type notice struct {
	to *node
	w  watch
}

// breakLink drops what is queued on a link and collects the watches that depend on
// it; under mu. Those are the sending side's: its connection to the watchee's
// node is the one that breaks.
func (n *Net) breakLink(e ends) (told []notice) {
	if p := n.pipes[e]; p != nil {
		n.stats.Broken += uint64(len(p.frames))
		p.clear()
	}
	from := n.nodes[e.from]
	if from == nil {
		return nil
	}
	told = append(told, notice{from, watch{addr: e.to}})
	for w := range from.watches {
		if w.addr == e.to {
			delete(from.watches, w)
			told = append(told, notice{from, w})
		}
	}
	return told
}

// tell posts notices; not under mu.
func tell(notices []notice) {
	for _, t := range notices {
		if t.w.watcher == "" {
			_ = contain(func() error { // as package remoting does
				t.to.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: t.w.addr})
				return nil
			})
			continue
		}
		t.to.terminated(t.w.watcher, actor.NewPID(t.w.addr, t.w.watchee), actor.TerminatedReason_AddressTerminated)
	}
}

// terminated tells a local watcher, if it is still there.
func (me *node) terminated(watcher string, who *actor.PID, why actor.TerminatedReason) {
	if ref, ok := me.system.ProcessRegistry.GetLocal(watcher); ok {
		ref.SendSystemMessage(actor.NewPID(me.addr, watcher), &actor.Terminated{Who: who, Why: why})
	}
}

// unwatch forgets a watch; it reports whether there was one.
func (me *node) unwatch(w watch) bool {
	me.net.mu.Lock()
	defer me.net.mu.Unlock()
	_, ok := me.watches[w]
	delete(me.watches, w)
	return ok
}
