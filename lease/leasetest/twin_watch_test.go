package leasetest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// change is what the twin tells its watchers.
type change struct {
	kind lease.EventKind
	e    *entry
	over bool // the put replaced a record
	rev  lease.Token
}

type watcher struct {
	prefix    string
	deletions bool // alone
	queue     []change
	more      chan struct{}
	told      int
}

func (s *twin) tell(c change) {
	s.calls++
	switch {
	case s.is(watchDropsOne) && s.calls%7 == 0,
		s.is(watchMissesReplacing) && c.over,
		s.is(watchMissesDeletions) && c.kind == lease.EventDelete,
		s.is(badUntold) && c.kind == lease.EventBad:
		return
	}
	for w := range s.watchers {
		if !s.watched(c.e.Name, w.prefix) {
			continue
		}
		if transferred := s.is(deletionsTellTransfers) && c.over; w.deletions && transferred {
			c.kind = lease.EventDelete
		} else if w.deletions && c.kind != lease.EventDelete && !s.is(deletionsTellPuts) {
			continue
		}
		if s.is(watchBufferOverflows) && len(w.queue) >= 4 {
			continue
		}
		w.queue = append(w.queue, c)
		if n := len(w.queue); s.is(watchSwaps) && n >= 2 {
			w.queue[n-1], w.queue[n-2] = w.queue[n-2], w.queue[n-1]
		}
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
}

func (s *twin) event(c change) lease.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.kind == lease.EventDelete {
		return lease.Event{Kind: c.kind, Record: lease.Record{Name: c.e.Name}, Revision: c.rev}
	}
	if c.kind == lease.EventProgress {
		return lease.Event{Kind: c.kind}
	}
	if c.kind == lease.EventBad {
		return lease.Event{Kind: c.kind, Record: lease.Record{Name: c.e.Name}}
	}
	r := s.public(c.e)
	rev := r.Token
	switch s.flaw {
	case watchNamesOnly:
		r.Metadata = nil
	case putRevisionAhead:
		rev++
	case putRevisionZero:
		rev = 0
	}
	return lease.Event{Kind: c.kind, Record: r, Revision: rev}
}

func (s *twin) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		if s.is(watchUnsupported) || s.is(watchUnsupportedSometimes) && prefix == "probe" {
			yield(lease.Event{}, lease.ErrUnsupported)
			return
		}
		if err := s.begin(ctx); err != nil {
			yield(lease.Event{}, err)
			return
		}
		w := &watcher{prefix: prefix, more: make(chan struct{}, 1)}
		s.watchers[w] = true
		var first []change
		for _, name := range slices.Sorted(maps.Keys(s.records)) {
			if s.watched(name, prefix) {
				first = append(first, change{kind: lease.EventPut, e: s.records[name]})
			}
		}
		for name := range s.bad {
			if strings.HasPrefix(name, prefix) && !s.is(badUntold) {
				first = append(first, change{kind: lease.EventBad, e: &entry{Record: lease.Record{Name: name}}})
			}
		}
		if s.is(watchStartsLate) {
			delete(s.watchers, w)
			s.gap(watchStartsLate)
			s.watchers[w] = true
		}
		s.mu.Unlock()
		if s.is(watchLeaks) {
			go func() {
				<-s.quit
			}()
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watchers, w)
		}()
		if s.is(watchNoSnapshot) {
			first = nil
		}
		if s.is(watchSnapshotTwice) {
			first = append(first, first...)
		}
		if s.is(watchSyncedFirst) && !yield(lease.Event{Kind: lease.EventSynced}, nil) {
			return
		}
		for _, c := range first {
			if !yield(s.event(c), nil) {
				return
			}
		}
		if !s.is(watchSyncedFirst) && !s.is(watchNeverSynced) && !yield(lease.Event{Kind: lease.EventSynced}, nil) {
			return
		}
		s.follow(ctx, w, yield)
	}
}

func (s *twin) WatchDeletions(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		if s.is(deletionsUnsupported) {
			yield(lease.Event{}, lease.ErrUnsupported)
			return
		}
		synced := func() bool {
			return s.is(watchNeverSynced) || s.is(deletionsSyncedLast) || yield(lease.Event{Kind: lease.EventSynced}, nil)
		}
		if s.is(deletionsStartLate) && ctx.Err() == nil {
			if !synced() {
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
		if err := s.begin(ctx); err != nil {
			yield(lease.Event{}, err)
			return
		}
		w := &watcher{prefix: prefix, deletions: true, more: make(chan struct{}, 1)}
		s.watchers[w] = true
		if s.is(deletionsSnapshot) {
			for _, name := range slices.Sorted(maps.Keys(s.records)) {
				if strings.HasPrefix(name, prefix) {
					w.queue = append(w.queue, change{kind: lease.EventPut, e: s.records[name]})
				}
			}
		}
		s.mu.Unlock()
		if s.is(watchLeaks) {
			go func() { <-s.quit }()
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watchers, w)
		}()
		if !s.is(deletionsStartLate) && !synced() {
			return
		}
		s.follow(ctx, w, yield)
	}
}

func (s *twin) Probe(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for w := range s.watchers {
		c := change{kind: lease.EventProgress}
		switch {
		case s.is(probeUnheard):
			continue
		case s.is(probeAhead):
			w.queue = append([]change{c}, w.queue...)
		default:
			w.queue = append(w.queue, c)
		}
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
	return nil
}

func (s *twin) follow(ctx context.Context, w *watcher, yield func(lease.Event, error) bool) {
	done := ctx.Done()
	if s.is(watchOutlivesContext) {
		done = s.quit
	}
	for {
		s.mu.Lock()
		var next *change
		if len(w.queue) > 0 {
			next = &w.queue[0]
			w.queue = w.queue[1:]
		}
		s.mu.Unlock()
		if next == nil {
			select {
			case <-w.more:
				continue
			case <-done:
				yield(lease.Event{}, ctx.Err())
				return
			case <-s.watchEnds():
				return
			}
		}
		if w.told++; s.is(watchSyncedOften) && w.told%3 == 0 {
			if !yield(lease.Event{Kind: lease.EventSynced}, nil) {
				return
			}
		}
		if s.is(watchInventsDeletions) && !yield(lease.Event{
			Kind: lease.EventDelete, Record: lease.Record{Name: w.prefix + "x"}, Revision: next.rev,
		}, nil) {
			return
		}
		if !yield(s.event(*next), nil) {
			return
		}
	}
}

// watchEnds is a moment after which a flawed watch ends without a word.
func (s *twin) watchEnds() <-chan time.Time {
	if s.is(watchGivesUp) {
		return time.After(20 * time.Millisecond)
	}
	return nil
}
