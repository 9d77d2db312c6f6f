package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This file keeps the store of remembered entities true: an id is in the store
// before its entity gets the first message, and out of it only when the entity has
// said so. Writes of one shard go one at a time, in batches.

// maxBatch bounds how many ids one write carries.
const maxBatch = 100

// noteLocked has the id of an entity written that is about to start, once it is known which are
// in the store.
func (s *shard) noteLocked(h *tenure, id string) {
	if h.rem.loaded {
		h.rem.add = append(h.rem.add, id)
		s.writeLocked(h)
	}
}

// forget has an id removed.
func (s *shard) forget(id string, g *gate.Gate) {
	if s.r.set.store == nil {
		return
	}
	s.do(func() {
		h := s.last // which may be ending
		if e := s.entries[id]; e == nil || e.gate != g || h == nil || h.cause != nil || !h.rem.known[id] {
			return
		}
		delete(h.rem.known, id)
		h.rem.remove = append(h.rem.remove, id)
		s.writeLocked(h)
	})
}

// recoverAll loads what is remembered of a shard that was taken up, and starts it, no
// faster than the node may.
func (s *shard) recoverAll(h *tenure) {
	if s.r.set.store == nil {
		return
	}
	s.r.ops.Go(func() {
		var ids, strays []string
		if !s.persist(h, "load", func(ctx context.Context) (err error) {
			ids, err = s.r.set.store.Load(ctx, h.term)
			return err
		}) {
			return
		}
		s.do(func() {
			if h.ending {
				return
			}
			ids, strays = s.own(ids)
			h.rem.loaded, h.rem.known = true, make(map[string]bool, len(ids))
			for _, id := range ids {
				h.rem.known[id] = true
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
			s.writeLocked(h)
		})
		if len(strays) > 0 {
			err := astray(s.name, strays)
			s.r.log.Error("remembered entities are not started", zap.Error(err))
			s.r.event(Event{Kind: NotRemembered, Shard: s.number, Token: h.term.Token(), Reason: err})
		}
		s.startAll(h, ids)
	})
}

// own tells what the store has of the shard's own from what it should not have: that is
// another shard's to start, or no shard's.
func (s *shard) own(ids []string) (own, strays []string) {
	for _, id := range ids {
		if ValidateEntityID(id) != nil || ShardOf(id, s.r.typ.Shards) != s.number {
			strays = append(strays, id)
		} else {
			own = append(own, id)
		}
	}
	return own, strays
}

// startAll starts remembered entities at the node's pace.
func (s *shard) startAll(h *tenure, ids []string) {
	const step = 20 * time.Millisecond
	perStep := max(1, s.r.set.recoverEvery/int(time.Second/step))
	for chunk := range slices.Chunk(ids, perStep) {
		select { // one shard at a time
		case s.r.pace <- struct{}{}:
		case <-s.r.life.Done():
			return
		case <-h.term.Context().Done():
			return
		}
		over := false
		s.do(func() {
			if over = s.tenure != h; over {
				return
			}
			for _, id := range chunk {
				if s.entries[id] == nil && h.rem.known[id] {
					s.beginLocked(id)
				}
			}
		})
		if !over {
			s.r.sleep(time.Duration(len(chunk)) * time.Second / time.Duration(s.r.set.recoverEvery))
		}
		<-s.r.pace
		if over || s.r.life.Err() != nil || h.term.Context().Err() != nil {
			return
		}
	}
}

// writeLocked sends the next batch, if none is under way; of a hosting that ends only removals.
func (s *shard) writeLocked(h *tenure) {
	m := &h.rem
	if m.writing || h.cause != nil || len(m.remove) == 0 && (h.ending || len(m.add) == 0) {
		return
	}
	m.writing, m.leaving = true, len(m.remove) > 0
	// Removals go first: one that is in both came again later.
	var add, remove []string
	if len(m.remove) > 0 {
		n := min(len(m.remove), maxBatch)
		remove, m.remove = slices.Clone(m.remove[:n]), m.remove[n:]
	} else {
		n := min(len(m.add), maxBatch)
		add, m.add = slices.Clone(m.add[:n]), m.add[n:]
	}
	s.r.ops.Go(func() {
		ok := s.persist(h, "update", func(ctx context.Context) error { return s.r.set.store.Update(ctx, h.term, add, remove) })
		s.do(func() {
			m.writing, m.leaving = false, false
			if !ok {
				if h.ending && h.term.Context().Err() == nil && s.r.life.Err() == nil {
					s.writeLocked(h) // the removals are still due
				}
				return
			}
			for _, id := range add {
				m.known[id] = true
				if e := s.entries[id]; e != nil && !h.ending { // else it is a later hosting's
					s.happensLocked(e, entities.Remembered)
				}
			}
			s.writeLocked(h)
		})
	})
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
func (s *shard) persist(h *tenure, what string, f func(context.Context) error) bool {
	defer s.failed(h, nil)
	call := storeCall{s.r, h.term.Context(), func() bool { return s.gone(h) }, func(err error) { s.notRemembered(h, what, err) }}
	for n := 0; ; n++ {
		err := call.try(min(storeWithin<<min(n, 10), storeMost), f)
		if err == nil || s.gone(h) {
			return err == nil
		}
		s.notRemembered(h, what, err)
		s.r.sleep(actors.Backoff(n, 100*time.Millisecond, 5*time.Second))
	}
}

// gone reports whether the store's answer for h is no longer needed.
func (s *shard) gone(h *tenure) (over bool) {
	s.do(func() { over = s.last != h || h.cause != nil || h.ending && !h.rem.leaving })
	return over || h.term.Context().Err() != nil || s.r.life.Err() != nil
}

// storeCall is how the store of remembered entities is called for something that
// lives as long as ctx, or until gone says so. tell hears that it hangs.
type storeCall struct {
	r    *Region
	ctx  context.Context
	gone func() bool
	tell func(error)
}

// try makes one call. One that does not come back though its time is over is reported,
// and waited for, as two calls for one list must not run at once, while the hosting needs
// it; then it is left behind, with errStoreLeft: it may hang for ever, so what it would
// write must not be read.
func (x storeCall) try(within time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(x.ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	boundary.Aside(func() (struct{}, error) { return struct{}{}, f(ctx) }, func(_ struct{}, err error) { done <- err })
	for {
		timeout := make(chan struct{})
		t := x.r.clock.AfterFunc(within, func() { close(timeout) })
		select {
		case err := <-done:
			t.Stop()
			if err != nil && context.Cause(ctx) == errStoreSlow {
				err = fmt.Errorf("%w: %w", errStoreSlow, err)
			}
			return err
		case <-x.ctx.Done():
		case <-x.r.life.Done():
		case <-timeout:
		}
		t.Stop()
		switch {
		case x.ctx.Err() != nil, x.r.life.Err() != nil, x.gone():
			return errStoreLeft
		case ctx.Err() == nil:
			cancel(errStoreSlow)
		default:
			x.tell(errStoreHangs)
		}
	}
}

// failed notes what stands between h and its store, for callers of Ask.
func (s *shard) failed(h *tenure, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.rem.failure = err
}

func (s *shard) notRemembered(h *tenure, what string, why error) {
	s.failed(h, why)
	s.r.log.Warn("the store of remembered entities failed", zap.String("shard", s.name), zap.String("call", what), zap.Error(why))
	s.r.event(Event{Kind: NotRemembered, Shard: s.number, Token: h.term.Token(), Reason: why})
}

// astray is an error that says that ids which the store has for a shard are none of it.
func astray(shard string, ids []string) error {
	return fmt.Errorf("%d ids that the store has for %s are of other shards, or no ids, and are left alone: the first is %.64q: %w",
		len(ids), shard, ids[0], lease.ErrInvalid)
}
