package sharding

import (
	"net/url"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// guardian is the parent of a shard's entities on this node under one term. It is no
// actor: who knows its name can't end it, and its children can tell it of their failures
// for as long as they live, or that would be a dead letter in the midst of a failure.
//
// Its children are named by their escaped ids. Each is made on a goroutine of its own:
// what the user's Props do may take its time, or hang, and the others do not wait for it.
type guardian struct {
	noActor
	s   *shard
	h   *tenure
	pid *actor.PID
}

// SendUserMessage implements actor.Process: no message is for it.
func (g *guardian) SendUserMessage(pid *actor.PID, message any) {
	outlet.Of(g.r.system).DeadLetter(pid, message)
}

// SendSystemMessage implements actor.Process. It runs on the goroutine of an entity that
// has failed, or ended.
func (g *guardian) SendSystemMessage(pid *actor.PID, message any) {
	defer g.contain()
	switch m := message.(type) {
	case *actor.Failure:
		g.failed(m.Who, m.Reason)
	case *actor.Terminated: // its gate tells
	default:
		g.noActor.SendSystemMessage(pid, message)
	}
}

func (g *guardian) contain() {
	if p := recover(); p != nil {
		g.s.r.log.Error("a shard's guardian panicked", zap.Any("panic", p), zap.Stack("stack"))
	}
}

// start makes the actor of e, if that is still wanted.
func (g *guardian) start(e *entry) {
	defer g.contain()
	s := g.s
	wanted, has := false, false
	s.do(func() {
		wanted = s.entries[e.id] == e && slices.Contains(s.happensLocked(e, entities.Due), entities.MakeGate)
		has = wanted && g.h.states.Has(e.id)
	})
	if !wanted {
		return
	}
	gt, err := g.gateFor(e, has)
	s.do(func() {
		if err != nil {
			g.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.GateFailed)
			return
		}
		e.gate, e.since = gt, s.Now()
		wanted = slices.Contains(s.happensLocked(e, entities.GateMade), entities.Spawn)
	})
	if err != nil || !wanted {
		return
	}
	s.r.active.Add(1)
	g.made(e, gt, boundary.Call(func() error { return g.spawn(e, gt) }))
}

// made: what was to make the actor of e has returned.
func (g *guardian) made(e *entry, gt *gate.Gate, err error) {
	defer g.contain()
	s, pid := g.s, gt.Actor()
	s.do(func() {
		if pid != nil && err != nil && !e.GivenUp {
			g.sayLocked(e, "an entity's Props failed: it is stopped", err)
		}
		switch {
		case e.GivenUp:
			s.r.active.Add(-1)
			s.happensLocked(e, entities.Made)
		case pid == nil:
			s.r.active.Add(-1)
			g.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.NotMade)
		case e.gate != gt: // that life is over already
			if err != nil {
				s.after = append(s.after, gt.Stop)
			}
		default:
			// A copy: what a PID was used for keeps the actor in memory.
			e.pid = actor.NewPID(pid.Address, pid.Id)
			if err == nil {
				s.happensLocked(e, entities.Made)
			} else {
				s.happensLocked(e, entities.MadeBadly)
			}
		}
	})
	s.r.tooMany()
}

// sayLocked logs what became of e, once the shard is not locked any more.
func (g *guardian) sayLocked(e *entry, what string, err error) {
	g.s.after = append(g.s.after, func() {
		g.r.log.Error(what, zap.String("shard", g.s.name), zap.String("id", e.id), zap.Error(err))
	})
}

// gateFor makes the gate of e's next life.
func (g *guardian) gateFor(e *entry, has bool) (gt *gate.Gate, err error) {
	s := g.s
	opts := gate.Options{
		Term:     g.h.term,
		Divert:   func(env any) { s.diverted(e, gt, env) },
		Internal: func(env any) { outlet.Of(s.r.system).DeadLetter(s.r.pid, env) },
		OnLost:   func(error) { s.lossNoticed() },
		OnDone:   func() { s.collect(e, gt) },
		OnEnd:    func(a actor.Actor, lost bool) { s.leaveState(e, g.h, a, lost) },
		Journal:  s.r.set.journal,
	}
	if has {
		opts.OnStart = func(a actor.Actor) error { return s.restoreState(e, g.h, a) }
	}
	return gate.New(opts)
}

// spawn makes the actor of e behind gt.
func (g *guardian) spawn(e *entry, gt *gate.Gate) error {
	self := &Entity{s: g.s, id: e.id, g: gt}
	return gt.Spawn(g.r.system, g.pid, g.pid.Id+"/"+url.PathEscape(e.id), g.s.r.props, actor.WithOnInit(func(ctx actor.Context) { ctx.Set(self) }))
}

// failed has an entity end that has panicked; starting it again is its entry's business.
func (g *guardian) failed(child *actor.PID, reason any) {
	defer g.r.stopActor(child)
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				g.s.happensLocked(e, entities.Panicked)
			}
		})
		g.r.crashed(g.s.number, id, reason)
	}
}
