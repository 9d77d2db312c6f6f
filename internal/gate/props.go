package gate

import (
	"errors"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/ctxext"

	"github.com/holdfast-go/holdfast/internal/boundary"
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
	p = p.Clone(
		actor.WithMailbox(func() actor.Mailbox { return newMailbox(g, child) }),
		actor.WithOnInit(func(ctx actor.Context) { ctx.Set(extension{g}) }),
	)
	if !child {
		p = p.Clone(actor.WithContextDecorator(func(next actor.ContextDecoratorFunc) actor.ContextDecoratorFunc {
			return func(ctx actor.Context) actor.Context { return &awaiting{next(ctx), g} }
		}))
	}
	return p
}

// awaiting is the guarded actor's context. It counts continuations, for which a planned end waits.
type awaiting struct {
	actor.Context
	gate *Gate
}

// ReenterAfter implements actor.Context.
func (a *awaiting) ReenterAfter(f *actor.Future, continuation func(any, error)) {
	a.gate.awaits.Add(1)
	a.Context.ReenterAfter(f, func(result any, err error) {
		defer a.gate.awaits.Add(-1)
		continuation(result, err)
	})
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

// errNotMade and errUnguarded are failures of Props.
var (
	errNotMade   = errors.New("its Props made no actor (SpawnFunc)")
	errUnguarded = errors.New("its Props made an actor that is not behind the gate: too late, or without the mailbox of the Props it was given (SpawnFunc)")
)

// spawn is how protoactor spawns by Props, which it hands to middleware alone.
var spawn = func() (spawn actor.SpawnFunc) {
	actor.PropsFromFunc(func(actor.Context) {},
		actor.WithSpawnMiddleware(func(next actor.SpawnFunc) actor.SpawnFunc { spawn = next; return next }))
	return spawn
}()

// parent is the context by which the guarded actor is spawned.
type parent struct {
	actor.SpawnerContext
	self *actor.PID
}

// Self implements actor.SpawnerContext.
func (p *parent) Self() *actor.PID { return p.self }

// Spawn makes the actor behind the gate, of p as Props would have it, changed by opts:
// with that name, and as a child of the actor by. Code of p runs on the caller's goroutine
// and may hold it up; a panic of its is an error.
//
// Whatever became of the call, Actor says whether there is an actor now: also where p
// failed once it had begun, so that it has to be stopped. Where there is none the gate is
// closed. What is made after Close is stopped at once, and is an error.
func (g *Gate) Spawn(system *actor.ActorSystem, by *actor.PID, name string, p *actor.Props, opts ...actor.PropsOption) (err error) {
	returned := false
	defer func() {
		if returned && err == nil {
			return
		}
		if g.Actor() == nil {
			if !returned { // it is registered, if it was OnInit
				system.ProcessRegistry.Remove(actor.NewPID(by.Address, name))
			}
			g.Close()
		}
	}()
	pid, err := boundary.Get(func() (pid *actor.PID, err error) {
		pid, err = spawn(system, name, g.Props(p).Configure(opts...), &parent{system.Root, by})
		returned = true
		return pid, err
	})
	switch {
	case err != nil:
	case pid == nil:
		err = errNotMade
	case g.Actor() == nil:
		if p, ok := system.ProcessRegistry.Get(pid); ok {
			_ = boundary.Contained(func() { p.Stop(pid) })
		}
		err = errUnguarded
	}
	return err
}

// Actor returns the PID of the guarded actor once it has begun, also after its end; nil if
// none has. After Close none begins any more.
func (g *Gate) Actor() *actor.PID {
	if m := g.main.Load(); m != nil {
		return m.self()
	}
	return nil
}

// Stop stops the guarded actor, if one has begun.
func (g *Gate) Stop() {
	if m := g.main.Load(); m != nil {
		m.PostSystemMessage(stop)
	}
}
