package directory

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
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
	c       Config
	others  boundary.Line          // of nodes with another number of shards
	differs atomic.Pointer[string] // the last of these, by its incarnation

	mu          sync.Mutex
	shards      []ShardRecord
	regions     map[string]Registration // by incarnation
	coordinator lease.Record
	version     uint64 // counts the changes of shards
	synced      struct{ shards, regions bool }
	ready       chan struct{} // closed when both are
	changed     []func()
}

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

func (t *Table) onShard(ev store.Event) {
	if ev.Kind == store.EventSynced {
		t.sync(&t.synced.shards)
		return
	}
	if ev.Kind == store.EventReset {
		t.reset(t.clearLocked)
		return
	}
	i, ok := t.c.Names.Number(ev.Record.Name, t.c.Shards)
	if !t.count(ev) || !ok {
		return
	}
	t.mu.Lock()
	s := &t.shards[i]
	switch ev.Kind {
	case store.EventPut:
		if ev.Record.Token < s.Last {
			t.mu.Unlock()
			return
		}
		rec := ev.Record
		rec.Name, rec.Metadata = t.c.Name(i), nil
		*s = ShardRecord{Record: rec, Held: true, Last: rec.Token}
	case store.EventDelete:
		if !s.Held || ev.Revision != 0 && ev.Revision < s.Record.Token {
			t.mu.Unlock()
			return
		}
		*s = ShardRecord{Last: s.Last, Free: t.c.Elapsed()}
	default:
		t.mu.Unlock()
		return
	}
	t.version++
	t.c.Shard(i, s.Record, s.Held)
	t.mu.Unlock()
	t.tell()
}

// count reports whether a change counts: records by nodes that know of another number
// of shards do not.
func (t *Table) count(ev store.Event) bool {
	name := ev.Record.Name
	if ev.Kind != store.EventPut {
		return ev.Kind == store.EventDelete
	}
	n, err := CountOf(ev.Record)
	if err != nil {
		t.c.Log.Warn("a record can't be read, left alone", zap.Error(err))
		return false
	}
	if n != t.c.Shards {
		of := ev.Record.Owner.Incarnation
		if last := t.differs.Load(); last != nil && *last == of {
			return false // it may hold every shard
		}
		if missed, ok := t.others.Open(t.c.Elapsed()); ok {
			t.differs.Store(&of)
			t.c.Log.Error("a node differs on the number of shards", zap.String("record", name), zap.Int("there", n),
				zap.Int("here", t.c.Shards), zap.String("peer", ev.Record.Owner.ID), zap.Int("missed", missed),
				boundary.Do("give all nodes the same sharding.Type.Shards"))
		}
		return false
	}
	return true
}

func (t *Table) onRegion(ev store.Event) {
	if ev.Kind == store.EventSynced {
		t.sync(&t.synced.regions)
		return
	}
	if ev.Kind == store.EventReset {
		t.reset(func() { clear(t.regions) })
		return
	}
	differs := ""
	if ev.Kind == store.EventPut && t.news(ev.Record) {
		if differs = Said.Differs(ev.Record, t.c.Settings); differs != "" {
			agree.Tell(t.c.Log, ev.Record, differs)
		}
	}
	ok := t.count(ev)
	t.mu.Lock()
	switch {
	case ev.Kind == store.EventDelete:
		for inc, g := range t.regions {
			if name, _ := t.c.Names.Region(g.Owner); name == ev.Record.Name && (ev.Revision == 0 || ev.Revision >= g.Token) {
				delete(t.regions, inc)
			}
		}
	case ok && ev.Kind == store.EventPut:
		rec := ev.Record
		if name, err := t.c.Names.Region(rec.Owner); err == nil && name == rec.Name && rec.Token >= t.regions[rec.Owner.Incarnation].Token {
			t.regions[rec.Owner.Incarnation] = Registration{rec.Owner, rec.Token, rec.Metadata[keyHosts] == "1",
				rec.Metadata[keyPlain] == "1", cmp.Or(differs, t.regions[rec.Owner.Incarnation].Differs)}
		}
	}
	t.mu.Unlock()
	t.tell()
}

// news reports whether a record is of a node that is not known.
func (t *Table) news(rec lease.Record) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.regions[rec.Owner.Incarnation]
	return !known && rec.Owner.Incarnation != t.c.Self
}

func (t *Table) onCoordinator(ev store.Event) {
	if ev.Kind == store.EventReset {
		t.reset(func() { t.coordinator = lease.Record{} })
		return
	}
	if ev.Record.Name != t.c.Names.Coordinator {
		return
	}
	t.mu.Lock()
	switch ev.Kind {
	case store.EventPut:
		if ev.Record.Token >= t.coordinator.Token {
			t.coordinator = ev.Record
		}
	case store.EventDelete:
		t.coordinator = lease.Record{Token: t.coordinator.Token}
	}
	t.c.Coordinator()
	t.mu.Unlock()
	t.tell()
}

// sync notes that a snapshot is complete.
func (t *Table) sync(what *bool) {
	t.mu.Lock()
	was := t.synced.shards && t.synced.regions
	*what = true
	if !was && t.synced.shards && t.synced.regions {
		close(t.ready)
	}
	t.mu.Unlock()
	t.tell()
}

// OnChange has f called after every change; it must not block.
func (t *Table) OnChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = append(t.changed, f)
}

// Ready is closed when all that stood when Follow was called is known.
func (t *Table) Ready() <-chan struct{} { return t.ready }

// reset forgets a part of the table, which f does with it locked, as the store's history
// went back and the one that stands was accepted.
func (t *Table) reset(f func()) {
	t.mu.Lock()
	f()
	t.c.Reset()
	t.mu.Unlock()
	t.tell()
}

func (t *Table) tell() {
	t.mu.Lock()
	fs := t.changed
	t.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

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
