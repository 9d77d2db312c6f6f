package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
)

const (
	// looks is the time between looks of a watch for sessions that are dead.
	looks = 100 * time.Millisecond
	// looking bounds such a look.
	looking = 5 * time.Second
)

// Watch implements store.Watcher. While it runs, this Store sees every renewal, and ends the sessions
// that are not renewed.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		err := s.check(ctx)
		if err != nil {
			yield(store.Event{}, fmt.Errorf("kubernetes: watch: %w", err))
			return
		}
		var following sync.WaitGroup
		defer following.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changes, ended := make(chan observed.Change), make(chan error, 1)
		following.Go(func() {
			ended <- s.objects.follow(ctx, func(c observed.Change) bool {
				select {
				case changes <- c:
				case <-ctx.Done():
				}
				return ctx.Err() == nil
			})
		})
		w := watch{s: s, of: of, view: s.View(of), versions: map[string]string{}}
		tick := time.NewTicker(looks)
		defer tick.Stop()
		for {
			var events []store.Event
			select {
			case c := <-changes:
				events, err = w.take(c)
			case <-tick.C:
				events, err = w.look(ctx)
			case err = <-ended:
			}
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			if err != nil {
				yield(store.Event{}, fmt.Errorf("kubernetes: watch: %w", err))
				return
			}
		}
	}
}

// watch is one.
type watch struct {
	s        *Store
	of       store.Scope
	view     *observed.View
	versions map[string]string // of the objects that stand, by key
	last     store.Token       // of all up to it was told
	proven   store.Token       // the latest write of the Store when that the watch runs was told last
	at       time.Time         // when that was; zero before EventSynced
}

// take makes events of a change, and of that the watch runs, if it came upon a write that the Store made
// since it said so last.
func (w *watch) take(c observed.Change) ([]store.Event, error) {
	events, err := w.view.Take(c)
	if err != nil {
		return nil, err
	}
	if c.Synced {
		w.at = time.Now()
		return events, nil
	}
	if w.versions[c.Key] = c.Version; c.Deleted {
		delete(w.versions, c.Key)
	}
	n, err := w.s.objects.Number(c.Version)
	w.last = max(w.last, n)
	if latest := w.s.latest(); latest > w.proven && w.last >= latest {
		events = w.runs(events)
	}
	return events, err
}

// latest is the latest write of this Store.
func (s *Store) latest() store.Token { return store.Token(s.objects.history.wrote.Highest()) }

// runs adds to events, behind EventSynced, that the watch runs.
func (w *watch) runs(events []store.Event) []store.Event {
	if w.at.IsZero() || w.of.Progress == 0 {
		return events
	}
	w.proven, w.at = w.s.latest(), time.Now()
	return append(events, store.Event{Kind: store.EventProgress})
}

// look ends dead sessions, and finds out whether the watch runs, if it did not say so for half of the time
// in which it must: it does if a listing has nothing new.
func (w *watch) look(ctx context.Context) ([]store.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	if err := w.view.End(ctx); err != nil {
		return nil, err
	}
	if w.at.IsZero() || w.of.Progress == 0 || time.Since(w.at) < w.of.Progress/2 {
		return nil, nil
	}
	stand := 0
	for o, err := range w.s.objects.List(ctx, "") {
		if err != nil || w.versions[o.Key] != o.Version {
			return nil, nil
		}
		stand++
	}
	if stand != len(w.versions) {
		return nil, nil
	}
	return w.runs(nil), nil
}

// follow tells of every object as it stands, a Change that is Synced, and then of every change since, with
// no gap, in the order of their versions, up to an error or the end of ctx, when tell is false.
func (o *objects) follow(ctx context.Context, tell func(observed.Change) bool) error {
	m := o.history.Mark()
	f := follower{objects: o, mark: m, keys: map[string]string{}, tell: tell}
	n, err := o.list(ctx, "", func(l *coordination.Lease) bool { return f.change(apiwatch.Added, l) })
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	tell(observed.Change{Synced: true})
	for f.version = fmt.Sprint(n); err == nil; {
		err = cmp.Or(f.connection(ctx), ctx.Err())
	}
	return err
}

// follower is a watch of the API over connections that follow on each other.
type follower struct {
	*objects
	mark    revision.Mark
	keys    map[string]string // by the names of Leases, for those whose annotation is lost
	version string            // that the watch has come to
	tell    func(observed.Change) bool
}

// connection follows from f.version until the server ends that, as it does every hour or less. An error ends
// the watch.
func (f *follower) connection(ctx context.Context) error {
	w, err := f.to("GET").Param("watch", "true").Param("labelSelector", kind).
		Param("resourceVersion", f.version).Param("allowWatchBookmarks", "true").Watch(ctx)
	if err != nil {
		return why(err)
	}
	defer w.Stop()
	some := false
	for ev := range w.ResultChan() {
		l, ok := ev.Object.(*coordination.Lease)
		if !ok {
			return why(apierrors.FromObject(ev.Object))
		}
		f.version, some = l.ResourceVersion, true
		n, err := f.Number(l.ResourceVersion)
		if err != nil {
			return err
		}
		f.history.Heard(f.mark.Age, at(n))
		if ev.Type != apiwatch.Bookmark && !f.change(ev.Type, l) {
			return ctx.Err()
		}
	}
	if ctx.Err() == nil && !some { // it may have come from where there is no watch
		return errors.New("the connection ended, and had told of nothing")
	}
	return ctx.Err()
}

// change tells of that of a Lease.
func (f *follower) change(of apiwatch.EventType, l *coordination.Lease) bool {
	key, known := f.keys[l.Name]
	if !known {
		if key = l.Annotations[keyOf]; nameOf(key) != l.Name {
			return true // none of ours
		}
		f.keys[l.Name] = key
	}
	c := observed.Change{Object: object(key, l), Deleted: of == apiwatch.Deleted}
	if c.Deleted {
		delete(f.keys, l.Name)
	}
	return f.tell(c)
}
