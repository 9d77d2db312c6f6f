package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// NewMemoryEntities returns a store of remembered entities in the memory of this
// process: for tests, and for clusters whose nodes all live in it and share the
// store. What it knows ends with the process.
//
// An Update is applied as a whole. The number of ids has no bound; a name is kept
// for good, since a fence must not forget.
func NewMemoryEntities() EntityStore {
	return &memoryEntities{shards: map[string]*memoryShard{}}
}

type memoryEntities struct {
	mu     sync.Mutex
	shards map[string]*memoryShard // by lease name
}

type memoryShard struct {
	highest lease.Token // the fence
	ids     map[string]struct{}
}

func (m *memoryEntities) Load(ctx context.Context, o lease.Ownership) (ids []string, err error) {
	err = m.do(ctx, "load", o, nil, func(s *memoryShard) { ids = slices.Collect(maps.Keys(s.ids)) })
	return ids, err
}

func (m *memoryEntities) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	return m.do(ctx, "update", o, slices.Concat(add, remove), func(s *memoryShard) {
		for _, id := range add {
			s.ids[id] = struct{}{}
		}
		for _, id := range remove {
			delete(s.ids, id)
		}
	})
}

// do runs f on o's shard if the fence lets o through, as one step.
func (m *memoryEntities) do(ctx context.Context, what string, o lease.Ownership, ids []string, f func(*memoryShard)) error {
	if err := ValidateCall(ctx, o, ids...); err != nil {
		return fmt.Errorf("remembered entities: %s: %w", what, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name, token := o.Name(), o.Token()
	s := m.shards[name]
	if s == nil {
		s = &memoryShard{ids: map[string]struct{}{}}
		m.shards[name] = s
	}
	if token < s.highest {
		return fmt.Errorf("remembered entities of %s: %s: token %d after %d: %w", name, what, token, s.highest, ErrStaleOwner)
	}
	s.highest = token
	f(s)
	return nil
}

// This part keeps the store of remembered entities true: an id is in the store before its entity
// gets the first message, and out of it only when the entity has said so. Writes of one shard go
// one at a time, in batches.

// maxBatch bounds how many ids one write carries.
const maxBatch = 100

// noteLocked has the id of an entity written that is about to start, once it is known which are
// in the store.
func (h *tenure) noteLocked(id string) {
	if h.rem.loaded {
		h.rem.add = append(h.rem.add, id)
		h.writeLocked()
	}
}

// forgetLocked has an id removed.
func (h *tenure) forgetLocked(id string) {
	if h.cause == nil && h.rem.known[id] {
		delete(h.rem.known, id)
		h.rem.remove = append(h.rem.remove, id)
		h.writeLocked()
	}
}

// recoverAll loads what is remembered of a shard that was taken up, and starts it, no
// faster than the node may.
func (h *tenure) recoverAll() {
	s := h.s
	if s.set.store == nil {
		return
	}
	s.ops.Go(func() {
		var ids, own, strays []string
		if !h.persist("load", func(ctx context.Context) (err error) {
			ids, err = s.set.store.Load(ctx, h.term)
			return err
		}) {
			return
		}
		s.do(func() {
			if h.ending {
				return
			}
			h.rem.loaded, h.rem.known = true, make(map[string]bool, len(ids))
			for _, id := range ids {
				if ValidateEntityID(id) == nil && ShardOf(id, s.typ.Shards) == s.number {
					h.rem.known[id] = true
					own = append(own, id)
				} else { // it is another shard's to start, or no shard's
					strays = append(strays, id)
				}
			}
			for _, e := range s.entries {
				switch {
				case e.Phase != entities.Remembering:
				case h.rem.known[e.id]:
					s.happensLocked(e, entities.Remembered)
				default:
					h.rem.add = append(h.rem.add, e.id)
				}
			}
			h.writeLocked()
		})
		if len(strays) > 0 {
			err := fmt.Errorf("%d ids that the store has for %s are of other shards, or no ids, and are left alone: the first is %.64q: %w",
				len(strays), s.name, strays[0], lease.ErrInvalid)
			s.log.Error("remembered entities are not started", zap.Error(err))
			s.event(Event{Kind: NotRemembered, Shard: s.number, Token: h.term.Token(), Reason: err})
		}
		h.startAll(own)
	})
}

// startAll starts remembered entities at the node's pace.
func (h *tenure) startAll(ids []string) {
	const step = 20 * time.Millisecond
	s := h.s
	perStep := max(1, s.set.recoverEvery/int(time.Second/step))
	for chunk := range slices.Chunk(ids, perStep) {
		select { // one shard at a time
		case s.crowd.pace <- struct{}{}:
		case <-s.life.Done():
			return
		case <-h.term.Context().Done():
			return
		}
		over := false
		s.do(func() {
			if over = s.last != h || h.ending; over {
				return
			}
			for _, id := range chunk {
				if s.entries[id] == nil && h.rem.known[id] {
					s.beginLocked(id)
				}
			}
		})
		if !over {
			s.sleep(time.Duration(len(chunk)) * time.Second / time.Duration(s.set.recoverEvery))
		}
		<-s.crowd.pace
		if over {
			return
		}
	}
}

// writeLocked sends the next batch, if none is under way; of a hosting that ends only removals.
func (h *tenure) writeLocked() {
	m, s := &h.rem, h.s
	if m.writing || h.cause != nil || len(m.remove) == 0 && (h.ending || len(m.add) == 0) {
		return
	}
	m.writing, m.leaving = true, len(m.remove) > 0
	// Removals go first: one that is in both came again later.
	var add, remove []string
	if m.leaving {
		remove, m.remove = batch(m.remove)
	} else {
		add, m.add = batch(m.add)
	}
	s.ops.Go(func() {
		ok := h.persist("update", func(ctx context.Context) error { return s.set.store.Update(ctx, h.term, add, remove) })
		s.do(func() {
			m.writing, m.leaving = false, false
			if !ok {
				if h.ending && h.term.Context().Err() == nil && s.life.Err() == nil {
					h.writeLocked() // the removals are still due
				}
				return
			}
			for _, id := range add {
				m.known[id] = true
				if e := s.entries[id]; e != nil && !h.ending { // else it is a later hosting's
					s.happensLocked(e, entities.Remembered)
				}
			}
			h.writeLocked()
		})
	})
}

// batch divides ids into those of the next write, which no one else has, and the rest.
func batch(ids []string) (next, rest []string) {
	n := min(len(ids), maxBatch)
	return slices.Clone(ids[:n]), ids[n:]
}

// What a call to the store may take: the first try, and twice as long each that follows,
// up to the most.
const (
	storeWithin = 10 * time.Second
	storeMost   = 2 * time.Minute
)

var (
	errStoreSlow  = errors.New("the store took too long")
	errStoreHangs = errors.New("the store has not returned, though its context is done")
	errStoreLeft  = errors.New("the store's answer is not waited for any longer")
)

// persist repeats a call to the store until it is done; false if the shard has gone.
func (h *tenure) persist(what string, f func(context.Context) error) bool {
	s := h.s
	defer h.failed(nil)
	tell := func(err error) {
		h.failed(err)
		s.notRemembered(s.number, h.term, what, err)
	}
	for n := 0; ; n++ {
		err := s.callStore(h.term.Context(), min(storeWithin<<min(n, 10), storeMost), h.gone, tell, f)
		if err == nil || h.gone() {
			return err == nil
		}
		tell(err)
		s.sleep(actors.Backoff(n, 100*time.Millisecond, 5*time.Second))
	}
}

// gone reports whether the store's answer for h is no longer needed.
func (h *tenure) gone() (over bool) {
	h.s.do(func() { over = h.s.last != h || h.cause != nil || h.ending && !h.rem.leaving })
	return over || h.term.Context().Err() != nil || h.s.life.Err() != nil
}

// callStore makes one call to the store of remembered entities, for something that lives as long as
// life. One that does not come back though its time is over is reported, and waited for, as two calls for
// one list must not run at once, until gone says that it is not needed; then it is left behind, with
// errStoreLeft: it may hang for ever, so what it would write must not be read.
func (n *node) callStore(life context.Context, within time.Duration, gone func() bool, tell func(error),
	f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	done := make(chan error, 1)
	boundary.Aside(func() (struct{}, error) { return struct{}{}, f(ctx) }, func(_ struct{}, err error) { done <- err })
	for {
		wait, stop := n.within(life, within)
		select {
		case err := <-done:
			stop()
			if err != nil && context.Cause(ctx) == errStoreSlow {
				err = fmt.Errorf("%w: %w", errStoreSlow, err)
			}
			return err
		case <-wait.Done():
		case <-n.life.Done():
		}
		stop()
		switch {
		case life.Err() != nil, n.life.Err() != nil, gone():
			return errStoreLeft
		case ctx.Err() == nil:
			cancel(errStoreSlow)
		default:
			tell(errStoreHangs)
		}
	}
}

// failed notes what stands between h and its store, for callers of Ask.
func (h *tenure) failed(err error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.rem.failure = err
}

// notRemembered tells that a call to the store failed, for the list of o; shard is -1 if a coordinator
// made it.
func (n *node) notRemembered(shard int, o lease.Ownership, call string, why error) {
	n.log.Warn("the store of remembered entities failed", zap.String("list", o.Name()), zap.String("call", call), zap.Error(why))
	n.event(Event{Kind: NotRemembered, Shard: shard, Token: o.Token(), Reason: why})
}
