package memnet

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// notice is an AddressTerminated that a watcher is owed; without a watcher it is
// what remote publishes on the event stream when it gives an address up.
type notice struct {
	to *node
	w  watch
}

// breakLink drops what is queued on a link and collects the watches that depend on
// it; under mu. Those are the sending side's: its connection to the watchee's
// node is the one that breaks. A node that has sent nothing has none, and none is told of.
func (n *Net) breakLink(e ends) (told []notice) {
	if p := n.pipes[e]; p != nil {
		n.stats.Broken += uint64(len(p.frames))
		p.clear()
	}
	from := n.nodes[e.from]
	if from == nil || from.links[e.to] != used {
		return nil
	}
	from.links[e.to] = broken
	told = append(told, notice{from, watch{addr: e.to}})
	for w := range from.watches {
		if w.addr == e.to {
			delete(from.watches, w)
			told = append(told, notice{from, w})
		}
	}
	return told
}

// tried: no link to addr has come about.
func (me *node) tried(addr string) {
	me.net.mu.Lock()
	is := me.links[addr] == trying && !me.dead
	if is {
		me.links[addr] = broken
	}
	me.net.mu.Unlock()
	if is {
		tell([]notice{{me, watch{addr: addr}}})
	}
}

// tell posts notices; not under mu.
func tell(notices []notice) {
	for _, t := range notices {
		if t.w.watcher == "" {
			outlet.Of(t.to.system).Do(actors.LinkBroke(t.to.system, t.w.addr)) // as package remoting does
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
