package directory

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Table is what a node knows of a type by the records of its leases: who holds
// each shard, who takes part, and who coordinates. Safe for concurrent use.
type Table struct {
	c      Config
	others boundary.Line // of nodes with another number of shards

	mu          sync.Mutex
	shards      []ShardRecord
	regions     map[string]Registration // by incarnation
	coordinator lease.Record
	version     uint64 // counts the changes of shards
	synced      [parts]bool
	ready       chan struct{} // closed when all are
}

// The parts of a Table, each of a prefix of names.
const (
	ofShards = iota
	ofRegions
	ofCoordinator
	parts
)

// Config is what a Table is made of.
type Config struct {
	Names    Names
	Shards   int
	Name     func(shard int) string // Names.Shard, of names that are there already
	Self     string                 // the incarnation of this node
	Settings string                 // of this node, as its own record has them
	Log      *zap.Logger
	Elapsed  func() time.Duration // the time, since a fixed point

	// These hear of changes, in their order, with the Table locked: it must not block,
	// nor call the Table. Shard hears who holds a shard, known being false if no node does;
	// Coordinator that the record of the coordinator may be another; Reset that tokens to
	// come may be lower than those that were seen.
	Shard       func(shard int, rec lease.Record, known bool)
	Coordinator func()
	Reset       func()

	// Changed hears of every change, after these and with the Table unlocked. It must not block.
	Changed func()
}

// ShardRecord is what is known of one shard.
type ShardRecord struct {
	Record lease.Record
	Held   bool
	Last   lease.Token   // the highest that was seen
	Free   time.Duration // since when it is not held, by Config.Elapsed
}

// Registration is a node that takes part.
type Registration struct {
	Owner   lease.Owner
	Token   lease.Token
	Hosts   bool
	Plain   bool   // it takes messages by the short way
	Differs string // its settings, from this node's; empty if they do not
}

// New makes a Table that knows nothing yet.
func New(c Config) *Table {
	t := &Table{c: c, shards: make([]ShardRecord, c.Shards), regions: map[string]Registration{}, ready: make(chan struct{})}
	t.clearLocked()
	return t
}

// clearLocked forgets the holders of all shards.
func (t *Table) clearLocked() {
	now := t.c.Elapsed()
	t.version++
	for i := range t.shards {
		t.shards[i] = ShardRecord{Free: now}
	}
}

// Follow begins to follow the records.
func (t *Table) Follow(k *lease.Keeper) (stop func(), err error) {
	n := t.c.Names
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, x := range []struct {
		prefix string
		f      func(store.Event)
	}{{n.Shards, t.onShard}, {n.Regions, t.onRegion}, {n.Coordinator, t.onCoordinator}} {
		s, err := k.Watch(x.prefix, x.f)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

// take takes an event of a part of the Table. forget and change run with it locked: forget as the
// store's history went back and the one that stands was accepted.
func (t *Table) take(ev store.Event, part int, forget, change func()) {
	t.mu.Lock()
	switch ev.Kind {
	case store.EventSynced:
		if !t.synced[part] {
			t.synced[part] = true
			if t.synced == [parts]bool{true, true, true} {
				close(t.ready)
			}
		}
	case store.EventReset:
		forget()
		t.c.Reset()
	case store.EventPut, store.EventDelete:
		change()
	}
	t.mu.Unlock()
	t.c.Changed()
}

func (t *Table) onShard(ev store.Event) {
	i, ok := t.c.Names.Number(ev.Record.Name, t.c.Shards)
	counts := t.count(ev) && ok
	t.take(ev, ofShards, t.clearLocked, func() {
		if !counts {
			return
		}
		s, rec := &t.shards[i], ev.Record
		switch {
		case ev.Kind == store.EventPut && rec.Token >= s.Last:
			rec.Name, rec.Metadata = t.c.Name(i), nil
			*s = ShardRecord{Record: rec, Held: true, Last: rec.Token}
		case ev.Kind == store.EventDelete && s.Held && (ev.Revision == 0 || ev.Revision >= s.Record.Token):
			*s = ShardRecord{Last: s.Last, Free: t.c.Elapsed()}
		default:
			return
		}
		t.version++
		t.c.Shard(i, s.Record, s.Held)
	})
}

// count reports whether a change counts: records by nodes that know of another number
// of shards do not.
func (t *Table) count(ev store.Event) bool {
	if ev.Kind != store.EventPut {
		return ev.Kind == store.EventDelete
	}
	n, err := CountOf(ev.Record)
	if err != nil {
		t.c.Log.Warn("a record can't be read, left alone", zap.Error(err))
		return false
	}
	if n != t.c.Shards { // it may hold every shard
		t.others.Warn(t.c.Log, t.c.Elapsed(), "a node differs on the number of shards", zap.String("record", ev.Record.Name),
			zap.Int("there", n), zap.Int("here", t.c.Shards), zap.String("peer", ev.Record.Owner.ID),
			boundary.Do("give all nodes the same sharding.Type.Shards"))
	}
	return n == t.c.Shards
}

func (t *Table) onRegion(ev store.Event) {
	rec, counts, differs := ev.Record, t.count(ev), ""
	t.take(ev, ofRegions, func() { clear(t.regions) }, func() {
		name, err := t.c.Names.Region(rec.Owner)
		was, known := t.regions[rec.Owner.Incarnation]
		switch {
		case ev.Kind == store.EventDelete:
			maps.DeleteFunc(t.regions, func(_ string, g Registration) bool {
				name, _ := t.c.Names.Region(g.Owner)
				return name == rec.Name && (ev.Revision == 0 || ev.Revision >= g.Token)
			})
		case counts && err == nil && name == rec.Name && rec.Token >= was.Token:
			if !known && rec.Owner.Incarnation != t.c.Self {
				differs = Said.Differs(rec, t.c.Settings)
			}
			t.regions[rec.Owner.Incarnation] = Registration{rec.Owner, rec.Token, rec.Metadata[keyHosts] == "1",
				rec.Metadata[keyPlain] == "1", cmp.Or(differs, was.Differs)}
		}
	})
	if differs != "" {
		agree.Tell(t.c.Log, rec, differs)
	}
}

func (t *Table) onCoordinator(ev store.Event) {
	t.take(ev, ofCoordinator, func() { t.coordinator = lease.Record{} }, func() {
		switch {
		case ev.Record.Name != t.c.Names.Coordinator:
			return
		case ev.Kind == store.EventDelete:
			t.coordinator = lease.Record{Token: t.coordinator.Token}
		case ev.Record.Token >= t.coordinator.Token:
			t.coordinator = ev.Record
		}
		t.c.Coordinator()
	})
}

// Ready is closed when all that stood when Follow was called is known.
func (t *Table) Ready() <-chan struct{} { return t.ready }

// Record returns the record of a shard's holder.
func (t *Table) Record(i int) (lease.Record, bool) {
	s := t.Shard(i)
	return s.Record, s.Held
}

// Shard returns what is known of a shard.
func (t *Table) Shard(i int) ShardRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shards[i]
}

// All returns a copy of all shards.
func (t *Table) All() []ShardRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.shards)
}

// Seat is what decides about one shard.
type Seat struct {
	Owner string      // the incarnation that holds it; empty: no node holds it
	Last  lease.Token // the highest that was seen
}

// Seats returns those of all shards, and the Version that they are of. There may be very
// many, and the coordinator asks at each change: it is all that it needs.
func (t *Table) Seats() (seats []Seat, version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Seat, len(t.shards))
	for i := range t.shards {
		s := &t.shards[i]
		if all[i].Last = s.Last; s.Held {
			all[i].Owner = s.Record.Owner.Incarnation
		}
	}
	return all, t.version
}

// Version is another after each change of what Seats returns.
func (t *Table) Version() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// Participants returns who takes part, those that host only if hosts is set,
// sorted by their tokens: the oldest first.
func (t *Table) Participants(hosts bool) []Registration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rs []Registration
	for _, g := range t.regions {
		if g.Hosts || !hosts {
			rs = append(rs, g)
		}
	}
	slices.SortFunc(rs, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Owner.Incarnation, b.Owner.Incarnation))
	})
	return rs
}

// Direct reports whether a node takes messages by the short way, if that is known.
func (t *Table) Direct(incarnation string) (can, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, known := t.regions[incarnation]
	return g.Plain, known
}

// Here reports whether no record says that a life is at another address than n does:
// then n speaks in its name.
func (t *Table) Here(n *wire.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, known := t.regions[n.GetIncarnation()]
	return n != nil && (!known || g.Owner.Address == n.Address)
}

// Coordinator returns the record of who coordinates; false if no node does.
func (t *Table) Coordinator() (lease.Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.coordinator, t.coordinator.Name != ""
}
