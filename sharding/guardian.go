package sharding

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
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
	h   *home
	pid *actor.PID
}

// SendUserMessage implements actor.Process: nobody has anything to say to it.
func (g *guardian) SendUserMessage(pid *actor.PID, message any) {
	outside.Of(g.r.system).DeadLetter(pid, message)
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
		wanted = s.entries[e.id] == e && e.state == starting && !g.h.ending && g.h.barred == nil
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
	if err != nil {
		s.do(func() { g.notMade(e, err) })
		return
	}
	s.do(func() {
		e.gate, e.since, e.crashed, e.leaves, e.hasty = gt, s.Now(), false, false, false
		if why := cmp.Or(g.h.cause, g.h.barred); why != nil {
			gt.Lose(why)
		}
		if wanted = g.h.cause == nil; !wanted {
			g.giveUp(e)
		}
	})
	if !wanted {
		return
	}
	s.r.active.Add(1)
	outside.Then(func() (struct{}, error) { return struct{}{}, g.spawn(e, gt) }, func(_ struct{}, err error) { g.made(e, gt, err) })
}

// made: what was to make the actor of e has returned, or ended its goroutine.
func (g *guardian) made(e *entry, gt *gate.Gate, err error) {
	defer g.contain()
	s, pid, stop := g.s, gt.Actor(), false
	s.do(func() {
		switch {
		case e.dropped:
			s.r.active.Add(-1)
			stop = true
		case pid == nil:
			s.r.active.Add(-1)
			g.notMade(e, err)
		default:
			g.started(e, gt, pid)
			if stop = err != nil; stop { // it failed when the actor had begun, whose end its gate tells
				e.crashed = e.crashed || e.gate == gt
				g.say(e, "an entity's Props failed: it is stopped", err)
			}
		}
	})
	if stop {
		gt.Stop() // it, and no later one of its name
	}
	s.r.tooMany()
}

// notMade: the actor of e could not be made.
func (g *guardian) notMade(e *entry, err error) {
	g.say(e, "an entity could not be made", err)
	e.crashed = true
	g.s.ended(e)
}

// giveUp goes on without what is to make the actor of e, which may hang: nothing passes to
// what comes of it. If the actor has begun it is stopped.
func (g *guardian) giveUp(e *entry) {
	e.gate.Close()
	if pid := e.gate.Actor(); pid != nil {
		e.state, e.pid = stopping, actor.NewPID(pid.Address, pid.Id)
		e.gate.Stop()
		return
	}
	e.dropped = true
	g.say(e, "an entity is given up that was being made", g.h.cause)
	g.s.giveBack(e, g.s.unpend(e))
}

// say logs what became of e, once the shard is not locked any more.
func (g *guardian) say(e *entry, what string, err error) {
	g.s.after = append(g.s.after, func() {
		g.r.log.Error(what, zap.String("shard", g.s.name), zap.String("id", e.id), zap.Error(err))
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
func (g *guardian) spawn(e *entry, gt *gate.Gate) error {
	self := &Entity{s: g.s, id: e.id, g: gt}
	return gt.Spawn(g.r.system, g.pid, g.pid.Id+"/"+url.PathEscape(e.id), g.s.r.props, actor.WithOnInit(func(ctx actor.Context) { ctx.Set(self) }))
}

// failed has an entity end that has panicked; starting it anew is its entry's business.
func (g *guardian) failed(child *actor.PID, reason any) {
	defer g.r.stopActor(child)
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				e.crashed = true
			}
		})
		g.r.crashed(g.s.number, id, reason)
	}
}
