package observed_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// told is a Numbered that keeps every change of its objects.
type told struct {
	observedtest.Numbered
	mu  sync.Mutex
	log []observed.Change
}

func (o *told) Put(ctx context.Context, key string, value []byte, ifVersion string) (string, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	version, ok, err := o.Numbered.Put(ctx, key, value, ifVersion)
	if ok {
		o.log = append(o.log, observed.Change{Object: observed.Object{Key: key, Value: value, Version: version}})
	}
	return version, ok, err
}

// Delete takes a number, as in stores that count deletions.
func (o *told) Delete(ctx context.Context, key, ifVersion string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ok, err := o.Numbered.Delete(ctx, key, ifVersion)
	if ok {
		version, _, _ := o.Numbered.Put(ctx, "deletions", nil, "")
		_, _ = o.Numbered.Delete(ctx, "deletions", version)
		o.log = append(o.log, observed.Change{Object: observed.Object{Key: key, Version: version}, Deleted: true})
	}
	return ok, err
}

// spoil writes something under a key that is no record.
func (o *told) spoil(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	value := []byte(`{"v":2}`)
	version, _, _ := o.Numbered.Put(context.Background(), key, value, "")
	o.log = append(o.log, observed.Change{Object: observed.Object{Key: key, Value: value, Version: version}})
}

// watching is a Store over it that watches.
type watching struct {
	*observed.Store
	objects *told
}

func (w watching) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		view := w.View(of)
		give := func(c observed.Change) bool {
			events, err := view.Take(c)
			for _, ev := range events {
				if !yield(ev, nil) {
					return false
				}
			}
			if err != nil {
				yield(store.Event{}, err)
			}
			return err == nil
		}
		w.objects.mu.Lock()
		at := len(w.objects.log)
		var stand []observed.Object
		for o := range w.objects.List(ctx, "") {
			stand = append(stand, o)
		}
		w.objects.mu.Unlock()
		for _, o := range stand {
			if !give(observed.Change{Object: o}) {
				return
			}
		}
		for ok := give(observed.Change{Synced: true}); ok; {
			w.objects.mu.Lock()
			news := w.objects.log[at:]
			w.objects.mu.Unlock()
			for at += len(news); len(news) > 0; news = news[1:] {
				if !give(news[0]) {
					return
				}
			}
			if err := view.End(ctx); err != nil {
				yield(store.Event{}, err)
				return
			}
			if ok = of.Progress == 0 || yield(store.Event{Kind: store.EventProgress}, nil); !ok {
				return
			}
			select {
			case <-ctx.Done():
				yield(store.Event{}, ctx.Err())
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func newTold() (*told, func() store.Store) {
	objects := &told{Numbered: observedtest.NewNumbered()}
	return objects, func() store.Store {
		s, err := observed.New(objects)
		if err != nil {
			panic(err)
		}
		return watching{s, objects}
	}
}

func TestConformanceOfWatches(t *testing.T) {
	storetest.Run(t, func(storetest.TB) func() store.Store {
		_, client := newTold()
		return client
	}, storetest.FakeTime(), storetest.Observed(), storetest.ExpirySlack(1350*time.Millisecond),
		storetest.BadRecords(func(storetest.TB) (func() store.Store, func(string)) {
			objects, client := newTold()
			return client, func(name string) { objects.spoil("records/" + strings.ReplaceAll(name, "/", "_2f")) }
		}))
}

// A session that no one can read holds its names, which a watch says; its end frees them.
func TestAWatchOfASessionThatCannotBeRead(t *testing.T) {
	objects, _ := newTold()
	p := newPeer(t, objects, 1)
	record := p.win("a")
	view := p.store.View(store.Scope{})
	take := func(c observed.Change) []store.Event {
		events := must(view.Take(c))(t)
		return events
	}
	for o, err := range objects.List(t.Context(), "") {
		require.NoError(t, err)
		require.Empty(t, take(observed.Change{Object: o}))
	}
	events := take(observed.Change{Synced: true})
	require.Len(t, events, 2)
	require.Equal(t, record.Token, events[0].Revision)
	require.Equal(t, store.EventSynced, events[1].Kind)
	bad := observed.Object{Key: "sessions/1", Value: []byte("{}"), Version: "100"}
	require.Equal(t, []store.Event{{Kind: store.EventBad, Record: store.Record{Name: "a"}, Revision: 0}}, without(take(observed.Change{Object: bad})))
	events = take(observed.Change{Object: observed.Object{Key: "sessions/1", Version: "101"}, Deleted: true})
	require.Equal(t, []store.Event{{Kind: store.EventDelete, Record: store.Record{Name: "a"}, Revision: 101}}, events)

	_, err := view.Take(observed.Change{Object: observed.Object{Key: "records/a", Version: "x"}})
	require.Error(t, err, "no number")
	counted := must(observed.New(observedtest.NewMap()))(t)
	_, err = counted.View(store.Scope{}).Take(observed.Change{Object: bad})
	require.ErrorIs(t, err, store.ErrInvalid)
}

// without are events without their revisions, which don't count for EventBad.
func without(events []store.Event) []store.Event {
	for i := range events {
		events[i].Revision = 0
	}
	return events
}
