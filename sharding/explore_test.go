package sharding

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
	"github.com/holdfast-go/holdfast/store"
)

// Models that are visited in the commit tier, and those of the nightly tier.
var (
	smallModels = []xmodel{
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Members: 1, Orders: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Orders: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Wishes: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1}},
	}
	largeModels = []xmodel{
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Members: 1, Orders: 2}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Wishes: 2}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Losses: 1, Wishes: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Members: 1, Wishes: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Unknowns: 1, Orders: 2}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1, Orders: 2}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Crashes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Losses: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Unknowns: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Links: 1, Orders: 1}},
	}
)

// TestExplore visits all that some nodes can come to together about one shard, with a
// coordinator that orders at will. In every state entities may pass at one host at
// most, and not after a later one's; no lease is given up under entities that were not
// shut off a TTL before; and a way leads on to where one of the nodes that take shards
// hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	all := world.Explore(t, tier.Models(smallModels, largeModels))
	if !tier.Nightly() || tier.Racing {
		return // the small models do not come to everything
	}
	for p, n := range all.Phases {
		require.NotZero(t, n, "%v is never come to", handover.Phase(p))
	}
	none := []handover.Event{handover.Keep, handover.Resign, handover.Pass, handover.WonInVain, handover.Reopen} // of a singleton alone
	for e, n := range all.Events[:handover.OwnEvents] {
		require.Equal(t, slices.Contains(none, handover.Event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.Effects[:handover.OwnEffects] {
		require.NotZero(t, n, "effect %d", f)
	}
}

// This file is what shards have around a hand-over in TestExplore: a coordinator that
// orders at will, nodes that leave and stay, memberships that are lost. It carries effects
// out as hosting.go and handoff.go do.

// order is an order of the coordinator's under way: to host, or to hand over to Next what
// is held by Token.
type order struct {
	Given       bool
	Next, Token uint8
}

// xnode is what a node of shards has besides.
type xnode struct {
	Leaving bool
	Next    uint8 // who is to take the shard over
	Order   order
}

type (
	xmodel   = world.Model[handover.Machine, xnode]
	xworld   = world.World[handover.Machine, xnode]
	xrun     = world.Run[handover.Machine, xnode]
	xstepper = world.Stepper[handover.Machine, xnode]
	xbudget  = world.Budget
	xplanted = world.Planted[handover.Machine, xnode]
)

// ofShards is the world.Owner of shards.
type ofShards struct{ yields bool }

func (o ofShards) String() string {
	if o.yields {
		return "yields"
	}
	return ""
}

func (o ofShards) Hold(m handover.Machine) handover.Machine { return m }

func (o ofShards) At(m handover.Machine, p handover.Phase) handover.Machine {
	m.Phase, m.Offer = p, false
	return m
}

func (o ofShards) Next(m handover.Machine, e handover.Event) (handover.Machine, []handover.Effect) {
	return m.Next(e)
}

func (o ofShards) Start(r *xrun) {
	for i := range r.Nodes {
		r.W.N[i].M.Yields = o.yields
	}
}

func (o ofShards) Carry(r *xrun, i int, f handover.Effect) {
	switch f {
	case handover.DoOpen:
		state := r.Given(i)
		if !r.Alive(i) { // it is lost as if it had been opened
			r.W.N[i].Run = r.W.N[i].Term
			r.Fire(i, handover.Lost)
			return
		}
		r.Begin(i, state)
	case handover.DoInvite:
		r.Ask(i, r.Fresh(i), r.W.N[i].O.Next)
	}
}

func (o ofShards) Away(r *xrun, i int)                 { r.W.N[i].O.Next = 0 }
func (o ofShards) Recorded(*xrun)                      {}
func (o ofShards) Unknown() handover.Event             { return handover.NotWon }
func (o ofShards) Silent(r *xrun, i int)               { r.Fire(i, handover.Declined) }
func (o ofShards) Refused(r *xrun, i int)              { r.Fire(i, handover.Declined) }
func (o ofShards) Objects(w *xworld, i int) bool       { return w.N[i].O.Leaving }
func (o ofShards) Receive(*xrun, int, int, world.Mail) {}
func (o ofShards) PeerLost(*xrun, int, int)            {}
func (o ofShards) Links(*xworld, int, int) bool        { return false }
func (o ofShards) Closed(handover.Machine) bool        { return false }
func (o ofShards) Refs(n *xnode) []*uint8              { return []*uint8{&n.Order.Token} }
func (o ofShards) MailName(uint8) string               { return "" }

// able reports whether a node takes shards.
func able(w *xworld, i int) bool {
	return w.L.H[i].Up && !w.N[i].O.Leaving && !w.N[i].M.Quitting
}

// Steps tells what the coordinator may order of i, and what else may become of it.
func (o ofShards) Steps(s *xstepper, i int) {
	if s.Prompt(i) { // orders don't come faster than messages
		o.orders(s, i)
	}
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Leaving && !n.M.Quitting {
		s.Step("has waited long enough for others to take its shard", a, 0, true, func(r *xrun) { r.Fire(i, handover.Quit) })
	}
	if w.Left.Wishes > 0 {
		if n.O.Leaving {
			s.Step("is to stay", a, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.N[i].O.Leaving = false; r.Fire(i, handover.Stay) })
		} else {
			s.Step("is to leave", a, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.N[i].O.Leaving = true })
		}
	}
	if w.Left.Members > 0 && n.M.Phase.Holds() {
		s.Step("loses its membership", a, 0, false, func(r *xrun) { r.W.Left.Members--; r.Fire(i, handover.Lost) })
	}
}

// orders: the coordinator sees to a shard that is free, and to one whose host leaves; else
// it may order anything that was sensible once.
func (o ofShards) orders(s *xstepper, i int) {
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Order.Given {
		s.Step("obeys the coordinator", a, 0, true, func(r *xrun) { obey(r, i) })
		if w.Left.Links > 0 {
			s.Step("lost: an order", a, 0, false, func(r *xrun) { r.W.Left.Links--; r.W.N[i].O.Order = order{} })
		}
		return
	}
	free := w.L.Rec.Owner == 0
	if sure := free && able(w, i) && (n.M.Phase == handover.Away || n.M.Phase == handover.Offered); sure || w.Left.Orders > 0 {
		s.Step("is ordered to host", a, 0, sure, func(r *xrun) {
			if !sure {
				r.W.Left.Orders--
			}
			r.W.N[i].O.Order = order{Given: true}
		})
	}
	for j := range s.Nodes {
		if j == i || !w.L.Owns(i) {
			continue
		}
		sure := n.O.Leaving && n.M.Phase == handover.Active && able(w, j) && w.N[j].M.Phase == handover.Away
		if sure || w.Left.Orders > 0 {
			s.Step("is ordered to hand over", a, j+1, sure, func(r *xrun) {
				if !sure {
					r.W.Left.Orders--
				}
				r.W.N[i].O.Order = order{true, uint8(j + 1), r.W.L.Rec.Token}
			})
		}
	}
}

func obey(r *xrun, i int) {
	n := &r.W.N[i]
	o := n.O.Order
	n.O.Order = order{}
	switch {
	case o.Next == 0 && r.Plant == "an order to host is taken for the lease":
		h := &r.W.L.H[i]
		n.Term = r.W.High + 1
		h.Alive, h.Claim, n.M.Phase = true, n.Term, handover.Opening
		r.Begin(i, 0)
	case o.Next == 0:
		if !n.O.Leaving {
			r.Fire(i, handover.Host)
		}
	case n.M.Phase.HandsOver() && n.O.Next == o.Next:
	case n.Term == 0 || n.Term != o.Token:
	default:
		if n.M.Phase == handover.Active {
			n.O.Next = o.Next
		}
		r.Fire(i, handover.Move)
	}
}

// Goal: if any node takes shards one of them hosts, and nobody else is at it; if none
// does, the shard is free.
func (o ofShards) Goal(w *xworld) bool {
	hosts, any := 0, false
	for i := range w.N {
		if !w.L.H[i].Up {
			continue
		}
		any = any || able(w, i)
		switch w.N[i].M.Phase {
		case handover.Away:
		case handover.Active:
			if !w.Hosts(i) || !able(w, i) {
				return false
			}
			hosts++
		default:
			return false
		}
		if !w.Calm(i) {
			return false
		}
	}
	if !any {
		return hosts == 0 && w.L.Rec.Owner == 0
	}
	return hosts == 1
}

// to has a machine go to a phase.
func to(m handover.Machine, p handover.Phase, effects ...handover.Effect) (handover.Machine, []handover.Effect) {
	return ofShards{}.At(m, p), effects
}

func ignored(m handover.Machine) (handover.Machine, []handover.Effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []xplanted{
	world.Plant("the lease is released before the entities have ended", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Quit, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoRelease)
		})}, world.ErrI4, false),
	world.Plant("the lease is transferred while entities run", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1},
		Instead: world.Instead(ofShards{}, handover.Invited, []handover.Phase{handover.Inviting}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Transferring, handover.DoTransfer)
		})}, world.ErrI4, false),
	world.Plant("entities that are overdue are left at once", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Overdue, []handover.Phase{handover.Draining}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Stopping, handover.DoYield)
		})}, world.ErrI4, false),
	world.Plant("an unknown transfer is taken for refused, and what ran begun again", xmodel{Owner: ofShards{}, Nodes: 2,
		Bounds: xbudget{Orders: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("an unknown transfer is taken for done", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1, Unknowns: 1}},
		explore.ErrDeadEnd, false),
	world.Plant("what was handed over is not adopted by a write", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("the states of a lease that was not adopted are taken", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1,
		Orders: 2}}, world.ErrOld, true),
	world.Plant("a lost 'off' leaves a node with its offer for ever", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1}},
		explore.ErrDeadEnd, false),
	world.Plant("an order to host is taken for the lease", xmodel{Owner: ofShards{}, Nodes: 2}, world.ErrI1, false),
	world.Plant("the gate does not look at the lease", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1}}, world.ErrI1, false),
	world.Plant("a loss is not heard while entities run", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Instead: world.Instead(ofShards{}, handover.Lost, []handover.Phase{handover.Active}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("what is won by a node that gives up is kept", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Won, []handover.Phase{handover.Acquiring}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			if m.Quitting {
				return to(m, handover.Away)
			}
			return m.Next(handover.Won)
		})}, explore.ErrDeadEnd, false),
	world.Plant("no answer is waited for in vain", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Orders: 1}}, explore.ErrDeadEnd, false),
	world.Plant("a lost shard is forgotten at once", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1},
		Instead: world.Instead(ofShards{}, handover.Lost, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoLose, handover.DoRelease)
		})}, world.ErrI4, false),
	world.Plant("the store releases blindly", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1},
		Flaws: explore.Flaws{BlindRelease: true}}, world.ErrI2, false),
	world.Plant("the store transfers blindly", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 2, Unknowns: 1},
		Flaws: explore.Flaws{BlindTransfer: true}}, world.ErrI1, true),
	world.Plant("a host trusts for longer than the store does", xmodel{Owner: ofShards{}, Nodes: 2, Flaws: explore.Flaws{TrustTooLong: true}}, world.ErrI1, false),
	world.Plant("nobody releases what nobody claims", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Orders: 1},
		Flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, false),
}

func TestExploreFindsPlantedMistakes(t *testing.T) { world.Find(t, planted) }

// loneShard is a shard of a Region that has nothing else.
func loneShard(system *actor.ActorSystem) *hold {
	n := &node{group: &membership.Group{}, keeper: &lease.Keeper{}, system: system, log: zap.NewNop()}
	n.clock, n.life = store.SystemClock(), context.Background()
	s := &hold{books: &books{node: n}}
	s.cell.node, s.whole = n, &s.shard
	return s
}

// livingTerm is a term that does not end.
type livingTerm struct{}

func (livingTerm) Name() string                 { return "shard/g/t/0" }
func (livingTerm) Token() lease.Token           { return 1 }
func (livingTerm) Context() context.Context     { return context.Background() }
func (livingTerm) CheckAlive() bool             { return true }
func (livingTerm) Check() (time.Duration, bool) { return 0, true }

// An entity that is being made while its shard is not to wait any longer is given up only
// if its actor can't begin any more: not one that begins between the look at it and the end
// of its gate, which would work on while the lease goes to another node.
func TestNothingBeginsAfterTheLookThatGivesItUp(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	s := loneShard(system)
	e := &entry{id: "id"}
	s.entries = map[string]*entry{"id": e}
	h := &tenure{s: &s.roster, term: livingTerm{}, start: func(*entry) {}, empty: func() {}}
	gt, err := gate.New(gate.Options{Term: h.term, Divert: func(any) {}})
	require.NoError(t, err)
	s.do(func() {
		s.last = h
		e.Life, _ = entities.Begin(s.nowOfLocked(e))
		e.Life, _ = e.Next(entities.Due, s.nowOfLocked(e))
		e.gate = gt
		e.Life, _ = e.Next(entities.GateMade, s.nowOfLocked(e))
	})
	require.Equal(t, entities.Making, e.Phase)

	// What happensLocked(e, Ending) does, with the actor's beginning in its midst.
	var now entities.Now
	s.do(func() {
		h.ending, h.cause = true, ErrOverdue // forceStop: the lease is kept
		now = s.nowOfLocked(e)
	})
	works, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	_ = gt.Spawn(system, actor.NewPID(system.Address(), "guardian"), "guardian/id", actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			close(works)
			<-release
		}
	}))
	begun := false
	select {
	case <-works:
		begun = true
	case <-time.After(100 * time.Millisecond):
	}
	s.do(func() {
		var effects []entities.Effect
		e.Life, effects = e.Next(entities.Ending, now)
		s.carryOutLocked(e, effects)
	})
	require.False(t, begun && len(s.entries) == 0, "it works, and the shard does not wait for it: its lease is given up")
}

type lateStore struct {
	EntityStore
	asked, answer chan struct{}
}

func (s *lateStore) Update(context.Context, lease.Ownership, []string, []string) error {
	close(s.asked)
	<-s.answer
	return nil
}

type endlessTerm struct{ lease.Term }

func (endlessTerm) Context() context.Context { return context.Background() }
func (endlessTerm) Token() lease.Token       { return 1 }

// What was written for an earlier ownership says nothing of what is remembered under this
// one: another node may have hosted the shard, and forgotten the id, in between.
func TestALateWriteStartsNothingOfALaterHome(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	db := &lateStore{asked: make(chan struct{}), answer: make(chan struct{})}
	s := loneShard(system)
	s.set.store = db
	s.entries = map[string]*entry{"id": {id: "id"}}
	tenureOf := func() *tenure {
		return &tenure{s: &s.roster, term: endlessTerm{}, start: func(*entry) {}, empty: func() {}}
	}
	before := tenureOf()
	before.rem = remembered{loaded: true, known: map[string]bool{}}
	s.last = before
	s.do(func() { before.noteLocked("id") })
	<-db.asked

	s.mu.Lock() // the shard went, and is back: its list is being read
	before.ending = true
	after := tenureOf()
	e := &entry{id: "id"}
	s.last, s.entries = after, map[string]*entry{"id": e}
	close(db.answer)
	time.Sleep(50 * time.Millisecond)
	s.mu.Unlock()
	s.ops.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, entities.Remembering, e.Phase, "it starts, and the list was not read")
}

// A cold start after a transfer that was refused says why it was.
func TestARefusedTransferIsTheReasonOfItsColdStarts(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	told := make(chan Event, 10)
	system.EventStream.Subscribe(func(e any) {
		if e, ok := e.(Event); ok {
			told <- e
		}
	})
	s := loneShard(system)
	s.last = &tenure{s: &s.roster}
	require.NoError(t, s.last.leftLocked().Put("alice", []byte("state")))
	why := errors.New("the record is another's")
	s.onTransferEnded(why)
	e := <-told
	require.Equal(t, ColdStart, e.Kind)
	require.Equal(t, "alice", e.ID)
	require.ErrorIs(t, e.Reason, why)
	require.Zero(t, handover.Of(system).Left.Used())
}
