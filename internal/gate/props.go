package gate

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/ctxext"
)

// Props returns a copy of p whose actor is behind the gate; p stays as it is.
// The mailbox of p is replaced; everything else is kept. The
// actor, also after a restart, finds the gate with Of; the OnInit functions of p
// run before that.
//
// A gate guards one actor. To a second one spawned with its Props, and to any
// after Close, nothing passes; all its mail is diverted.
func (g *Gate) Props(p *actor.Props) *actor.Props {
	return g.props(p, false)
}

// Guard returns a copy of p for a child of the guarded actor, or of one of its
// guarded children, as many of them as needed. The child works under the same
// term: nothing passes to it once the gate is lost. What is refused goes to the
// actor system's dead letters. Drain changes nothing for it: its
// mail is no front-door mail. p stays as it is, but for the copy's mailbox,
// which does what actor.Unbounded does.
func (g *Gate) Guard(p *actor.Props) *actor.Props {
	return g.props(p, true)
}

func (g *Gate) props(p *actor.Props, child bool) *actor.Props {
	return p.Clone(
		actor.WithMailbox(func() actor.Mailbox { return newMailbox(g, child) }),
		actor.WithOnInit(func(ctx actor.Context) { ctx.Set(extension{g}) }),
	)
}

// extension makes a gate reachable from an actor's context.
type extension struct{ gate *Gate }

var extensionID = ctxext.NextContextExtensionID()

func (extension) ExtensionID() ctxext.ContextExtensionID { return extensionID }

// Of returns the gate that the actor of ctx is behind. ok is false for an actor
// without one. Call it from the actor's own goroutine.
func Of(ctx actor.ExtensionContext) (g *Gate, ok bool) {
	if ctx == nil {
		return nil, false
	}
	// A context has room for the first extensions only until one is set, and
	// panics beyond that: then none of ours was.
	defer func() {
		if recover() != nil {
			g, ok = nil, false
		}
	}()
	e, ok := ctx.Get(extensionID).(extension)
	return e.gate, ok
}
