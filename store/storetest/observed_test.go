package storetest

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

// ofObjects tells whether f is one that observed.Objects have: the mistakes of those
// who write such for a service. That those without one pass is tested where they are.
func (f *flaw) ofObjects() bool { return f != nil && strings.HasPrefix(f.text, "Objects: ") }

// objectsOptions are those for stores that observed.New makes.
func objectsOptions(f *flaw) []Option {
	return []Option{Observed(), ExpirySlack(1350 * time.Millisecond), Unreachable(func(TB) func() store.Store {
		o := newFlawedObjects(f)
		o.Map.SetFault(func(ctx context.Context, _, _ string, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		})
		return o.client
	})}
}

// flawedObjects are an observedtest.Map, or a Numbered, but for one flaw.
type flawedObjects struct {
	*observedtest.Map
	flaw *flaw

	mu    sync.Mutex
	puts  map[string]int // of a key, since it was made
	named map[string]int // numbers of versions
}

func newFlawedObjects(f *flaw) *flawedObjects {
	return &flawedObjects{Map: observedtest.NewMap(), flaw: f, puts: map[string]int{}, named: map[string]int{}}
}

func (o *flawedObjects) client() store.Store {
	var objects observed.Objects = o
	if o.flaw == objectsNumberAnew {
		objects = numberedAnew{o}
	}
	s, err := observed.New(objects)
	if err != nil {
		panic(err)
	}
	return s
}

func (o *flawedObjects) Get(ctx context.Context, key string) (observed.Object, bool, error) {
	found, ok, err := o.Map.Get(ctx, key)
	if o.flaw == objectsSilentMiss {
		err = nil
	}
	return found, ok, err
}

func (o *flawedObjects) Put(ctx context.Context, key string, value []byte, ifVersion string) (string, bool, error) {
	if stands, ok, err := o.Map.Get(ctx, key); err == nil {
		switch {
		case o.flaw == objectsPutAlways:
			time.Sleep(50 * time.Microsecond)
			stands, _, _ = o.Map.Get(ctx, key)
			ifVersion = stands.Version
		case o.flaw == objectsPutAgain && !ok:
			ifVersion = ""
		case o.flaw == objectsForget && bytes.Contains(value, []byte(`"session":"0"`)):
			ok, err := o.Map.Delete(ctx, key, ifVersion)
			return "gone", ok, err
		}
	}
	version, ok, err := o.Map.Put(ctx, key, value, ifVersion)
	if ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.puts[key]++
		o.named[version] = o.puts[key]
	}
	return version, ok, err
}

func (o *flawedObjects) Delete(ctx context.Context, key, ifVersion string) (bool, error) {
	if o.flaw == objectsDeleteNothing {
		return true, nil
	}
	ok, err := o.Map.Delete(ctx, key, ifVersion)
	if ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.puts[key] = 0
	}
	return ok, err
}

func (o *flawedObjects) List(ctx context.Context, prefix string) iter.Seq2[observed.Object, error] {
	return func(yield func(observed.Object, error) bool) {
		n := 0
		for found, err := range o.Map.List(ctx, prefix) {
			if n++; n > 20 && o.flaw == objectsListPage || !yield(found, err) {
				return
			}
		}
	}
}

// numberedAnew begins to count with each object that is made.
type numberedAnew struct{ *flawedObjects }

func (n numberedAnew) Number(version string) (store.Token, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Token(n.named[version]), nil
}

// dead is a store whose backing does not answer.
type dead struct {
	*faultstore.Store
	flaw *flaw
}

func unreachable(f *flaw) Factory {
	return func(tb TB) func() store.Store {
		s := faultstore.Wrap(newTwin(tb, flawless))
		s.Partition()
		return func() store.Store { return dead{s, f} }
	}
}

func (d dead) Acquire(
	ctx context.Context, own store.Session, claims []store.Claim,
) ([]store.Outcome, error) {
	outs, err := d.Store.Acquire(ctx, own, claims)
	switch d.flaw {
	case hangs:
		time.Sleep(10 * time.Second)
	case goneUnreachable:
		return nil, store.ErrSessionGone
	case refusesUnreachable:
		return make([]store.Outcome, len(claims)), nil
	}
	return outs, err
}

func (d dead) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		d.Store.Watch(ctx, of)(func(ev store.Event, err error) bool {
			if d.flaw == hangsWatching {
				time.Sleep(10 * time.Second)
			}
			return yield(ev, err)
		})
	}
}
