package sharding

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

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
