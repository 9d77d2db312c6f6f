//go:build linux

package torture

import (
	"encoding/binary"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/test/cluster"
)

// account is a worker that hands its state over: the token it ran under, and how many
// asks it has had, so that each state is told from all others.
type account struct {
	worker
	target uint16
	total  uint32 // asks, those of accounts before it included
	from   uint64 // the token under which the state was left; 0: none was given
	life   uint32 // accounts before it that left a state
}

// Receive implements actor.Actor.
func (a *account) Receive(ctx actor.Context) {
	a.worker.Receive(ctx)
	switch ctx.Message().(type) {
	case *actor.Started:
		if e, ok := sharding.Of(ctx); ok {
			a.target = a.node.targetOf(e.ID())
		}
		if a.from != 0 {
			a.note(entry{at: cluster.Now(), kind: gotState, target: a.target, seq: a.from, sender: a.life})
		}
	case ask:
		a.total++
	}
}

// targetOf is the target that an account is.
func (n *node) targetOf(id string) uint16 {
	for i, x := range n.accounts {
		if x == id {
			return uint16(n.Names.Singletons + i)
		}
	}
	panic(fmt.Sprintf("no account %q", id))
}

const stateSize = 16

// HandOverState implements hosting.Stateful.
func (a *account) HandOverState() ([]byte, error) {
	if a.own == nil {
		return nil, nil // its lease ended before it could begin
	}
	a.note(entry{at: cluster.Now(), kind: leftState, target: a.target, seq: uint64(a.life + 1)})
	state := binary.LittleEndian.AppendUint64(make([]byte, 0, stateSize), uint64(a.own.Token()))
	state = binary.LittleEndian.AppendUint32(state, a.life+1)
	return binary.LittleEndian.AppendUint32(state, a.total), nil
}

// RestoreState implements hosting.Stateful.
func (a *account) RestoreState(state []byte) error {
	if len(state) != stateSize {
		return fmt.Errorf("a state of %d bytes, must be %d", len(state), stateSize)
	}
	a.from, a.life, a.total = binary.LittleEndian.Uint64(state), binary.LittleEndian.Uint32(state[8:]), binary.LittleEndian.Uint32(state[12:])
	return nil
}

// states judges what was handed over. One account may leave several states under one
// token, when it was started again before the shard moved: the last one counts.
func (j *judgement) states(ev evidence) {
	type key struct {
		target        uint16
		token, number uint64
	}
	left, got := map[key]seen{}, map[key]seen{}
	for _, e := range ev.entries {
		switch e.kind {
		case leftState:
			j.left++
			left[key{e.target, e.token, e.seq}] = e
		case gotState:
			j.got++
			k := key{e.target, e.seq, uint64(e.sender)}
			from, ok := left[k]
			switch before, again := got[k]; {
			case !ok:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state that nobody left before", e.target), e)
			case e.token <= e.seq:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state of the same or a later host", e.target), from, e)
			case again:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state that another began with", e.target), from, before, e)
			}
			got[k] = e
		}
	}
}
