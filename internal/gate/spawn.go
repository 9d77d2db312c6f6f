package gate

import (
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

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
