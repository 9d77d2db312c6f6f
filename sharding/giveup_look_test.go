package sharding

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
	"github.com/holdfast-go/holdfast/store"
)

// loneShard is a shard of a Region that has nothing else.
func loneShard(system *actor.ActorSystem) *hold {
	n := &node{group: &membership.Group{}, system: system, log: zap.NewNop()}
	n.clock, n.life = store.SystemClock(), context.Background()
	s := &hold{books: &books{node: n, freed: func() {}}}
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
