package sharding

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// startEntity is what a shard tells its guardian.
type startEntity struct{ e *entry }

// guardian is the parent of a shard's entities on this node under one term. Its
// children are named by their escaped ids. Each is made on a goroutine of its own: what
// the user's Props do may take its time, or hang, and the others do not wait for it.
type guardian struct {
	s *shard
	h *home
}

// Receive implements actor.Actor.
func (g *guardian) Receive(ctx actor.Context) {
	defer g.contain()
	switch m := ctx.Message().(type) {
	case *startEntity:
		parent := &parent{g.s.r.system.Root, ctx.Self()}
		go func() {
			defer g.contain()
			g.start(parent, m.e)
		}()
	case *actor.Stopping: // at its time, or by anybody who knows its name
		g.s.r.post(&guardianEnded{g.s.number, g.h})
	}
}

func (g *guardian) contain() {
	if p := recover(); p != nil {
		g.s.r.log.Error("a shard's guardian panicked", zap.Any("panic", p), zap.Stack("stack"))
	}
}

// parent has a guardian's child spawned on another goroutine than the guardian's, whose
// context it stands for.
type parent struct {
	actor.SpawnerContext
	self *actor.PID
}

// Self implements actor.SpawnerContext.
func (p *parent) Self() *actor.PID { return p.self }

// spawn is how protoactor spawns by Props, which it hands to middleware alone.
var spawn = func() (spawn actor.SpawnFunc) {
	actor.PropsFromFunc(func(actor.Context) {}, actor.WithSpawnMiddleware(func(next actor.SpawnFunc) actor.SpawnFunc { spawn = next; return next }))
	return spawn
}()

// start makes the actor of e, if that is still wanted.
func (g *guardian) start(ctx *parent, e *entry) {
	s := g.s
	wanted, has := false, false
	s.do(func() {
		wanted = s.entries[e.id] == e && e.state == starting && !g.h.ending
		if !wanted {
			return
		}
		e.state = making
		has = g.h.states.Has(e.id)
	})
	if !wanted {
		return
	}
	gt, err := g.gateFor(e, has)
	if err == nil {
		s.do(func() { e.gate, e.since, e.crashed, e.leaves, e.hasty = gt, s.Now(), false, false, false })
		s.r.active.Add(1)
		var pid *actor.PID
		if pid, err = g.spawn(ctx, e, gt); err == nil {
			s.do(func() { g.started(e, gt, pid) })
			s.r.tooMany()
			return
		}
		s.r.active.Add(-1)
	}
	s.r.log.Error("an entity could not be made", zap.String("shard", s.name), zap.String("id", e.id), zap.Error(err))
	s.do(func() {
		e.crashed = true
		s.ended(e)
	})
}

// started: the actor of e was made; it may have ended since.
func (g *guardian) started(e *entry, gt *gate.Gate, pid *actor.PID) {
	s := g.s
	if e.gate != gt {
		return
	}
	// A copy: what a PID was used for keeps the actor in memory.
	e.pid = actor.NewPID(pid.Address, pid.Id)
	if e.state != making {
		return
	}
	e.state = active
	s.use(e) // it has just begun, however long its mail has waited
	if g.h.ending {
		s.end(e, g.h)
		return
	}
	if e.leaves { // in Started already: its next life gets the mail
		s.putAway(e)
		return
	}
	for _, env := range s.unpend(e) {
		if left, ok := wire.PatienceOf(s.r.system, actor.UnwrapEnvelopeSender(env)); ok && left == 0 {
			s.Refuse(&route.Item{Local: &mail{e.id, env}}, wire.Reason_REASON_EXPIRED, "who asked does not wait any more")
			continue
		}
		gt.Post(env)
	}
}

// gateFor makes the gate of e's next life.
func (g *guardian) gateFor(e *entry, has bool) (gt *gate.Gate, err error) {
	s := g.s
	opts := gate.Options{
		Term:     g.h.term,
		Divert:   func(env any) { s.diverted(e, gt, env) },
		Internal: func(env any) { outside.Of(s.r.system).DeadLetter(s.r.pid, env) },
		OnLost:   func(error) { s.r.post(&lossNoticed{s.number}) },
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
func (g *guardian) spawn(ctx *parent, e *entry, gt *gate.Gate) (pid *actor.PID, err error) {
	name := ctx.self.Id + "/" + url.PathEscape(e.id)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Props panicked: %v", p)
			g.s.r.system.ProcessRegistry.Remove(actor.NewPID(ctx.self.Address, name)) // it is registered, if it was OnInit
		}
		if err != nil {
			gt.Close()
		}
	}()
	self := &Entity{s: g.s, id: e.id, g: gt}
	props := gt.Props(g.s.r.props).Configure(actor.WithOnInit(func(ctx actor.Context) { ctx.Set(self) }))
	return spawn(g.s.r.system, name, props, ctx)
}

// HandleFailure implements actor.SupervisorStrategy: an entity that panics ends;
// starting it anew is its entry's business.
func (g *guardian) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				e.crashed = true
			}
		})
		g.s.r.crashed(g.s.number, id, reason)
	}
	sup.StopChildren(child)
}
