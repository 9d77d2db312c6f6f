package sharding

import (
	"errors"
	"maps"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/stateful"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is the state that entities hand over with their shard.

// leaveState takes the state of an entity that has ended, if its shard is on the
// way to another node; on the entity's goroutine.
func (s *shard) leaveState(e *entry, h *home, a actor.Actor) {
	pack := false
	s.do(func() { pack = h.pack })
	if !pack {
		return
	}
	state, err := stateful.Take(a, s.r.set.stateLimit)
	if err != nil {
		s.coldStart(e.id, err)
	}
	if state != nil {
		s.do(func() {
			if h.bag == nil {
				h.bag = map[string][]byte{}
			}
			h.bag[e.id] = state
		})
	}
}

// restoreState gives a new entity what was handed over; on its goroutine. If that
// fails it ends, and the next one starts cold.
func (s *shard) restoreState(e *entry, a actor.Actor, state []byte) error {
	err := stateful.Give(a, state)
	if err == nil {
		return nil
	}
	s.coldStart(e.id, err)
	if errors.Is(err, stateful.ErrNot) {
		return nil // it can start as it is
	}
	return err
}

func (s *shard) coldStart(id string, why error) {
	s.r.log.Warn("cold start: an entity's state was not handed over", zap.String("shard", s.name), zap.String("id", id), zap.Error(why))
	s.r.event(Event{Kind: ColdStart, Shard: s.number, ID: id, Reason: why})
}

// sendStates sends what the entities left to the shard's next host; before the
// word that it is that.
func (s *shard) sendStates() {
	to := s.inv.node.GetAddress()
	for id, state := range s.takeBag() {
		s.r.send(to, &wire.EntityState{Name: s.name, From: s.r.self, Number: s.inv.number, Key: id, State: state})
	}
}

// takeBag empties the bag of the home that has ended.
func (s *shard) takeBag() (bag map[string][]byte) {
	s.do(func() {
		if h := s.last; h != nil {
			bag, h.bag = maps.Clone(h.bag), nil
		}
	})
	return bag
}

var errNotTaken = errors.New("the shard was not handed over")

// loseStates tells of states that nobody gets.
func (s *shard) loseStates(states map[string][]byte, why error) {
	for id := range states {
		s.coldStart(id, why)
	}
}
