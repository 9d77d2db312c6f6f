package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"

	_ "github.com/holdfast-go/holdfast/backends/kubernetes/register" // their URLs
	_ "github.com/holdfast-go/holdfast/backends/postgres/register"
	_ "github.com/holdfast-go/holdfast/backends/redis/register"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
)

// opened is a store, and what knows it from its records alone.
type opened struct {
	store   store.Store
	keeper  *lease.Keeper
	console *console.Console // nil: for no command that reads it
	where   string           // for people
	close   func() error
}

// open opens the store that was named.
func (a *app) open(ctx context.Context) (*opened, error) {
	if a.store == "" {
		return nil, usage("no store: give --store or HOLDFAST_STORE, such as %s or sqlite:leases.db", storeExample)
	}
	if rest, ok := strings.CutPrefix(a.store, "sqlite:"); ok { // which makes a file where there is none
		path, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
		path, _ = url.PathUnescape(path)
		if _, err := os.Stat(path); path != "" && errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("sqlite: no file %q: the first process that takes a lease makes it", path)
		}
	}
	s, closeStore, err := open.Open(ctx, a.store)
	if errors.Is(err, store.ErrInvalid) {
		err = &coded{codeUsage, err}
	}
	if err != nil {
		return nil, err
	}
	o := &opened{store: s, where: s.Limits().Name, close: closeStore}
	if at := s.Limits().Endpoints; len(at) > 0 {
		o.where += " at " + strings.Join(at, ", ")
	}
	o.keeper, err = lease.NewKeeper(s, lease.Config{ID: fmt.Sprintf("holdfast-%d", os.Getpid()), Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(o.say(err), closeStore())
	}
	return o, nil
}

// Close releases what is held.
func (o *opened) Close() {
	if o.console != nil {
		o.console.Close()
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	_ = o.keeper.Close(ctx) // what it can't release ends with its TTL
	_ = o.close()
}

// say names the store in an error.
func (o *opened) say(err error) error {
	if err != nil {
		err = fmt.Errorf("store %s: %w", o.where, err)
	}
	return err
}

func (o *opened) Snapshot(ctx context.Context, since time.Duration) (console.Snapshot, error) {
	s, err := o.console.Snapshot(ctx, time.Now().Add(-since))
	if err == nil && s.Cluster.StoreFailure != "" {
		err = errors.New(s.Cluster.StoreFailure)
	}
	return s, o.say(err)
}

// Changes adds what the records tell to the events, which only nodes know otherwise.
func (o *opened) Changes(ctx context.Context, f func(console.Snapshot)) error {
	const most = 10_000
	var mu sync.Mutex
	var events []console.Event
	number, synced := 0, false
	stop, err := o.keeper.Watch("", func(e store.Event) {
		mu.Lock()
		defer mu.Unlock()
		kind := map[store.EventKind]string{store.EventPut: "seen", store.EventDelete: "seen free"}[e.Kind]
		if synced = synced || e.Kind == store.EventSynced; !synced || kind == "" {
			return
		}
		number++
		x := console.Event{ID: fmt.Sprintf("store-%d", number), At: time.Now().UTC(), Kind: kind, Name: e.Record.Name,
			Peer: e.Record.Owner.ID, Source: "store"}
		if e.Record.Token > 0 {
			x.Token = fmt.Sprint(e.Record.Token)
		}
		events = append(events[max(0, len(events)-most):], x)
	})
	if err != nil {
		return o.say(err)
	}
	defer stop()
	return o.say(o.console.Changes(ctx, func(s console.Snapshot) {
		mu.Lock()
		s.Events = append(slices.Clone(s.Events), events...)
		mu.Unlock()
		f(s)
	}))
}

func (o *opened) Act(context.Context, console.Request) (a console.Accepted, err error) {
	return a, store.ErrUnsupported // it is refused before
}
