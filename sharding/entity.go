package sharding

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
)

// Entity is what an entity knows of itself. Its methods may be called from
// anywhere.
type Entity struct {
	region *Region
	s      *shard
	id     string
	g      *gate.Gate
}

func (r *Region) entity(s *shard, id string, g *gate.Gate) any { return &Entity{r, s, id, g} }

// Of returns which entity the actor of ctx is, from before its first message, in
// Started already; ok is false if it is none. Call it from the actor's own
// goroutine.
func Of(ctx actor.Context) (e *Entity, ok bool) {
	if g, ok := gate.Of(ctx); ok && ctx.Self().Equal(g.Actor()) { // else it is a child that the entity guards
		e, _ = g.Self.(*Entity)
	}
	return e, e != nil
}

// ID is the entity's.
func (e *Entity) ID() string { return e.id }

// Shard is the number of its shard, Region the part of its type on this node.
func (e *Entity) Shard() int { return e.s.number }

// Region returns the part of its type that is on this node.
func (e *Entity) Region() *Region { return e.region }

// Name is the name of the shard's lease; with Token it makes an Entity what
// fences of stores take.
func (e *Entity) Name() string { return e.g.Name() }

// Token is the fencing token of the shard's lease: pass it to every resource that
// can check one.
func (e *Entity) Token() lease.Token { return e.g.Token() }

// Context is done when the shard is lost, the entity has to be gone, or has ended;
// context.Cause says why. Pass it to everything that blocks.
func (e *Entity) Context() context.Context { return e.g.Context() }

// CheckAlive reports whether work may go on at this moment. A long handler asks
// before each step.
func (e *Entity) CheckAlive() bool { return e.g.CheckAlive() }

// Guard returns a copy of p for a child of the entity: nothing is processed by it
// once the shard is lost. A mailbox of p is replaced.
func (e *Entity) Guard(p *actor.Props) *actor.Props { return e.g.Guard(p) }

// Ref returns a PID of the entity that may be kept, given away and sent to, from
// other nodes as well, while the Region of this node lives (Region.Ref).
func (e *Entity) Ref() *actor.PID { return e.region.refs.ref(e.id) }

// Passivate stops the entity when it is done with the message it works on. What was
// sent to it and not handled, or comes later, starts it again.
func (e *Entity) Passivate() { e.s.passivate(e.id, e.g) }

// Forget is Passivate, and the entity is not remembered any more (WithRemember).
// A message that is there already, or comes later, starts it and has it
// remembered again. A shard that moves waits until the store has been told, by its
// deadline (WithStop) at most; that, or a loss of the shard, may undo it.
func (e *Entity) Forget() {
	e.s.forget(e.id, e.g)
	e.Passivate()
}
