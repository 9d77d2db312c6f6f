package storetest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

func (s *twin) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweepFor(expiryUnseen)
	var found []store.Record
	for _, name := range names {
		e := s.records[name]
		s.calls++
		if s.is(staleGet) && s.calls%5 == 0 {
			e = s.previous[name]
		}
		if e != nil && name != s.hidden {
			found = append(found, s.public(e))
		}
		switch {
		case !s.bad[name], s.is(badUngot):
		case s.is(badFailsGet) && len(names) > 1:
			return nil, store.ErrBadRecord
		case s.is(badEndsGet):
			return append(found, store.Record{Name: name}), nil
		case s.is(badIsRecord):
			found = append(found, store.Record{Name: name, Token: 1})
		default:
			found = append(found, store.Record{Name: name})
		}
		if s.is(getsByPrefix) || s.is(getsFolded) {
			for other, e := range s.records {
				if other != name && (s.is(getsByPrefix) && strings.HasPrefix(other, name) || s.is(getsFolded) && strings.EqualFold(other, name)) {
					found = append(found, s.public(e))
				}
			}
		}
	}
	return found, nil
}

// sweepFor removes what expired where a flaw has kept it from being removed.
func (s *twin) sweepFor(f *flaw) {
	if s.is(f) {
		s.sweep()
	}
}

func (s *twin) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	if q.Session != 0 {
		return s.listSession(ctx, q.Session)
	}
	prefix := q.Prefix
	return func(yield func(store.Record, error) bool) {
		if s.is(listUnsupported) || s.is(listUnsupportedSometimes) && prefix != "" {
			yield(store.Record{}, fmt.Errorf("list: %w", store.ErrUnsupported))
			return
		}
		if err := s.begin(ctx); err != nil {
			if !s.is(listEndsSilently) {
				yield(store.Record{}, err)
			}
			return
		}
		s.sweepFor(expiryUnseen)
		var found []store.Record
		names := slices.Sorted(maps.Keys(s.records))
		for i := 0; i < len(names); i++ {
			e := s.records[names[i]]
			if s.is(listPagesByIndex) && i%4 == 3 {
				s.gap(listPagesByIndex)
				names = slices.Sorted(maps.Keys(s.records))
				if i < len(names) {
					e = s.records[names[i]]
				}
			}
			if e != nil && s.matches(e.Name, prefix) {
				found = append(found, s.public(e))
			}
		}
		if s.is(listShowsExpired) {
			for name, e := range s.previous {
				if s.records[name] == nil && s.expired[name] {
					found = append(found, s.public(e))
				}
			}
		}
		if s.is(listsOnePage) {
			found = found[:min(len(found), 1500)]
		}
		var bad []string
		for name := range s.bad {
			if strings.HasPrefix(name, prefix) {
				bad = append(bad, name)
			}
		}
		s.mu.Unlock()
		for _, name := range bad {
			switch s.flaw {
			case badUnlisted:
				continue
			case badIsRecord:
				if !yield(store.Record{Name: name}, nil) {
					return
				}
				continue
			}
			if !yield(store.Record{Name: name}, store.ErrBadRecord) || s.is(badEndsList) {
				return
			}
		}
		for _, r := range found {
			if ctx.Err() != nil && !s.is(ignoresContext) {
				if !s.is(listEndsSilently) {
					yield(store.Record{}, ctx.Err())
				}
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) matches(name, prefix string) bool {
	switch s.flaw {
	case listsBySegment:
		return prefix == "" || name == strings.TrimSuffix(prefix, "/") || strings.HasPrefix(name, strings.TrimSuffix(prefix, "/")+"/")
	case listsByPattern: // SQL's LIKE, not escaped
		if i := strings.IndexAny(prefix, "_"); i >= 0 {
			return len(name) > i && strings.HasPrefix(name, prefix[:i])
		}
	case listsByLike:
		return like(name, prefix)
	case listsByGlob:
		return glob(name, prefix)
	case listsFolded:
		return foldedPrefix(name, prefix)
	case listsTrimmed:
		return strings.HasPrefix(name, strings.TrimSpace(prefix))
	case listsByCharacter:
		return strings.HasPrefix(name, prefix) && !strings.HasPrefix(name[len(prefix):], "\u0301")
	}
	return strings.HasPrefix(name, prefix)
}

func (s *twin) listSession(ctx context.Context, want store.SessionID) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		if err := s.begin(ctx); err != nil {
			if !s.is(listedSilent) {
				yield(store.Record{}, err)
			}
			return
		}
		found, err := s.listed(want)
		s.mu.Unlock()
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) listed(want store.SessionID) (found []store.Record, err error) {
	s.sweepFor(expiryUnseen)
	sess := s.sessions[want]
	if sess == nil || sess.gone {
		if s.is(listedGoneUnsaid) {
			return nil, nil
		}
		return nil, store.ErrSessionGone
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		e := s.records[name]
		of := e.sess == sess
		switch s.flaw {
		case listedOthers:
			of = e.Owner.Incarnation == sess.Owner.Incarnation
		case listedByClaimant:
			of = s.once[name][want]
		case listedStale:
			if old := s.previous[name]; of && old != nil && old.sess == sess {
				e = old
			}
		}
		if of {
			found = append(found, s.public(e))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.previous)) {
		if e := s.previous[name]; s.is(listedReleased) && s.records[name] == nil && e.sess == sess {
			found = append(found, s.public(e))
		}
	}
	switch {
	case s.is(listedLeavesOut) && len(found) > 2:
		found = found[1:]
	case s.is(listedPage):
		found = found[:min(len(found), 500)]
	}
	return found, nil
}

// composed is the normal form C of the letters that the kit uses.
var composed = strings.NewReplacer("e\u0301", "é", "A\u030a", "\u00c5", "\u212b", "\u00c5", "\u1112\u1161\u11ab", "한")

// spelt is what becomes of a claimed name.
func (s *twin) spelt(name string) string {
	switch s.flaw {
	case foldsCase:
		return strings.ToLower(name)
	case truncatesNames:
		return name[:min(len(name), 255)]
	case trimsNames:
		return strings.TrimRight(name, " ")
	case normalisesNames:
		return composed.Replace(name)
	}
	return name
}

// standing is the record that a claim of the name meets.
func (s *twin) standing(name string) *entry {
	if e := s.records[name]; e != nil {
		return e
	}
	for other, e := range s.records {
		if s.is(collatesCase) && strings.EqualFold(name, other) ||
			s.is(collatesPadding) && strings.TrimRight(name, " ") == strings.TrimRight(other, " ") ||
			s.is(collatesForms) && composed.Replace(name) == composed.Replace(other) {
			return e
		}
	}
	return nil
}

func foldedPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// like matches with a pattern of SQL to which % was added, without an escape.
func like(name, prefix string) bool {
	p := regexp.QuoteMeta(prefix)
	return matched("^"+strings.NewReplacer("%", ".*", "_", ".").Replace(p), name)
}

// glob matches with a pattern of a shell to which * was added.
func glob(name, prefix string) bool {
	p := strings.NewReplacer(".", `\.`, "+", `\+`, "(", `\(`, ")", `\)`, "|", `\|`, "$", `\$`, "{", `\{`, "}", `\}`,
		"*", ".*", "?", ".").Replace(prefix)
	return matched("^"+p, name)
}

// matched is false also for what is no pattern.
func matched(pattern, name string) bool {
	ok, err := regexp.MatchString("(?s)"+pattern, name)
	return err == nil && ok
}

// watched tells whether a watch of prefix tells of a name.
func (s *twin) watched(name, prefix string) bool {
	switch s.flaw {
	case watchesByLike:
		return like(name, prefix)
	case watchesByGlob:
		return glob(name, prefix)
	case watchesFolded:
		return foldedPrefix(name, prefix)
	case watchesEscaped:
		prefix = strings.ReplaceAll(prefix, `\`, "")
	case watchIgnoresPrefix:
		return true
	}
	return strings.HasPrefix(name, prefix)
}

// change is what the twin tells its watchers.
type change struct {
	kind store.EventKind
	e    *entry
	over bool // the put replaced a record
	rev  store.Token
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
		s.is(watchMissesDeletions) && c.kind == store.EventDelete,
		s.is(badUntold) && c.kind == store.EventBad:
		return
	}
	for w := range s.watchers {
		if !s.watched(c.e.Name, w.prefix) {
			continue
		}
		if transferred := s.is(deletionsTellTransfers) && c.over; w.deletions && transferred {
			c.kind = store.EventDelete
		} else if w.deletions && c.kind != store.EventDelete && !s.is(deletionsTellPuts) {
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

func (s *twin) event(c change) store.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.kind {
	case store.EventDelete, store.EventBad:
		return store.Event{Kind: c.kind, Record: store.Record{Name: c.e.Name}, Revision: c.rev}
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
	return store.Event{Kind: c.kind, Record: r, Revision: rev}
}

func (s *twin) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	prefix, deletions := of.Prefix, of.Deletions
	return func(yield func(store.Event, error) bool) {
		if s.is(watchUnsupported) || s.is(watchUnsupportedSometimes) && prefix == "probe" {
			yield(store.Event{}, store.ErrUnsupported)
			return
		}
		synced := func() bool {
			return s.is(watchNeverSynced) || s.is(deletionsSyncedLast) && deletions || yield(store.Event{Kind: store.EventSynced}, nil)
		}
		early, first := s.is(deletionsStartLate) && deletions && ctx.Err() == nil, s.is(watchSyncedFirst) && !deletions
		if early {
			if !synced() {
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
		if err := s.begin(ctx); err != nil {
			yield(store.Event{}, err)
			return
		}
		w := &watcher{prefix: prefix, deletions: deletions, more: make(chan struct{}, 1)}
		s.watchers[w] = true
		snapshot := s.snapshot(prefix, deletions)
		if s.is(watchStartsLate) && !deletions {
			delete(s.watchers, w)
			s.gap(watchStartsLate)
			s.watchers[w] = true
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
		if first && !synced() {
			return
		}
		for _, c := range snapshot {
			if !yield(s.event(c), nil) {
				return
			}
		}
		if !first && !early && !synced() {
			return
		}
		s.follow(ctx, w, of.Progress, yield)
	}
}

// snapshot is what a watch begins with.
func (s *twin) snapshot(prefix string, deletions bool) (all []change) {
	if deletions && !s.is(deletionsSnapshot) || s.is(watchNoSnapshot) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if s.watched(name, prefix) {
			all = append(all, change{kind: store.EventPut, e: s.records[name]})
		}
	}
	for name := range s.bad {
		if strings.HasPrefix(name, prefix) && !s.is(badUntold) {
			all = append(all, change{kind: store.EventBad, e: &entry{Record: store.Record{Name: name}}})
		}
	}
	if s.is(watchSnapshotTwice) {
		all = append(all, all...)
	}
	return all
}

func (s *twin) follow(ctx context.Context, w *watcher, progress time.Duration, yield func(store.Event, error) bool) {
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
				yield(store.Event{}, ctx.Err())
				return
			case <-s.watchEnds():
				return
			case <-s.reassures(progress):
				if !yield(store.Event{Kind: store.EventProgress}, nil) {
					return
				}
				continue
			}
		}
		if w.told++; s.is(watchSyncedOften) && w.told%3 == 0 {
			if !yield(store.Event{Kind: store.EventSynced}, nil) {
				return
			}
		}
		if s.is(watchInventsDeletions) && !yield(store.Event{
			Kind: store.EventDelete, Record: store.Record{Name: w.prefix + "x"}, Revision: next.rev,
		}, nil) {
			return
		}
		if !yield(s.event(*next), nil) {
			return
		}
	}
}

// reassures is a moment after which a quiet watch says that it runs.
func (s *twin) reassures(progress time.Duration) <-chan time.Time {
	if progress == 0 || s.is(progressUntold) {
		return nil
	}
	return time.After(progress)
}

// watchEnds is a moment after which a flawed watch ends without a word.
func (s *twin) watchEnds() <-chan time.Time {
	if s.is(watchGivesUp) {
		return time.After(20 * time.Millisecond)
	}
	return nil
}
