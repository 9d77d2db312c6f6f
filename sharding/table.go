package sharding

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// table is what a node knows of a type by the records of its leases: who holds
// each shard, who takes part, and who coordinates.
type table struct {
	r *Region

	mu      sync.Mutex
	shards  []standing
	regions map[string]registration // by incarnation
	boss    lease.Record
	synced  struct{ shards, regions bool }
	ready   chan struct{} // closed when both are
	changed []func()
}

// standing is one shard.
type standing struct {
	rec  lease.Record
	held bool
	last lease.Token   // the highest that was seen
	free time.Duration // since when it is not held, by elapsed
}

// registration is a node that takes part.
type registration struct {
	owner   lease.Owner
	token   lease.Token
	hosts   bool
	plain   bool   // it takes messages by the short way
	differs string // its settings, from this node's; empty if they do not
}

func newTable(r *Region) *table {
	t := &table{r: r, shards: make([]standing, r.typ.Shards), regions: map[string]registration{}, ready: make(chan struct{})}
	t.clear()
	return t
}

// clear forgets who holds the shards.
func (t *table) clear() {
	now := t.r.elapsed()
	for i := range t.shards {
		t.shards[i] = standing{free: now}
	}
}

// follow begins to follow the records.
func (t *table) follow(k *lease.Keeper, n names) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, x := range []struct {
		prefix string
		f      func(lease.Event)
	}{{n.shards, t.onShard}, {n.regions, t.onRegion}, {n.coordinator, t.onBoss}} {
		s, err := k.Watch(x.prefix, x.f)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

func (t *table) onShard(ev lease.Event) {
	if ev.Kind == lease.EventSynced {
		t.sync(&t.synced.shards)
		return
	}
	if ev.Kind == lease.EventReset {
		t.reset(func() { t.clear() })
		return
	}
	i, ok := t.r.names.number(ev.Record.Name, t.r.typ.Shards)
	if !t.count(ev) || !ok {
		return
	}
	t.mu.Lock()
	s := &t.shards[i]
	switch ev.Kind {
	case lease.EventPut:
		if ev.Record.Token < s.last {
			t.mu.Unlock()
			return
		}
		rec := ev.Record
		rec.Name, rec.Metadata = t.r.shards[i].name, nil
		*s = standing{rec: rec, held: true, last: rec.Token}
	case lease.EventDelete:
		if !s.held || ev.Revision != 0 && ev.Revision < s.rec.Token {
			t.mu.Unlock()
			return
		}
		*s = standing{last: s.last, free: t.r.elapsed()}
	default:
		t.mu.Unlock()
		return
	}
	rec, held := s.rec, s.held
	t.r.post(&recordNoticed{i, rec, held})
	t.mu.Unlock()
	t.tell()
}

// count reports whether a change counts: records by nodes that know of another number
// of shards do not.
func (t *table) count(ev lease.Event) bool {
	name := ev.Record.Name
	if ev.Kind != lease.EventPut {
		return ev.Kind == lease.EventDelete
	}
	n, err := countOf(ev.Record)
	if err != nil {
		t.r.log.Warn("a record can't be read, left alone", zap.Error(err))
		return false
	}
	if n != t.r.typ.Shards {
		t.r.log.Error("a node differs on the number of shards", zap.String("record", name), zap.Int("there", n),
			zap.Int("here", t.r.typ.Shards),
			zap.String("node", ev.Record.Owner.ID))
		return false
	}
	return true
}

func (t *table) onRegion(ev lease.Event) {
	if ev.Kind == lease.EventSynced {
		t.sync(&t.synced.regions)
		return
	}
	if ev.Kind == lease.EventReset {
		t.reset(func() { clear(t.regions) })
		return
	}
	differs := ""
	if ev.Kind == lease.EventPut && t.news(ev.Record) {
		differs = t.r.notice(ev.Record)
	}
	ok := t.count(ev)
	t.mu.Lock()
	switch {
	case ev.Kind == lease.EventDelete:
		for inc, g := range t.regions {
			if name, _ := t.r.names.region(g.owner); name == ev.Record.Name && (ev.Revision == 0 || ev.Revision >= g.token) {
				delete(t.regions, inc)
			}
		}
	case ok && ev.Kind == lease.EventPut:
		rec := ev.Record
		if name, err := t.r.names.region(rec.Owner); err == nil && name == rec.Name && rec.Token >= t.regions[rec.Owner.Incarnation].token {
			t.regions[rec.Owner.Incarnation] = registration{rec.Owner, rec.Token, rec.Metadata[keyHosts] == "1",
				rec.Metadata[keyPlain] == "1", cmp.Or(differs, t.regions[rec.Owner.Incarnation].differs)}
		}
	}
	t.mu.Unlock()
	t.tell()
}

// news reports whether a record is of a node that is not known.
func (t *table) news(rec lease.Record) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.regions[rec.Owner.Incarnation]
	return !known && rec.Owner.Incarnation != t.r.self.Incarnation
}

func (t *table) onBoss(ev lease.Event) {
	if ev.Kind == lease.EventReset {
		t.reset(func() { t.boss = lease.Record{} })
		return
	}
	if ev.Record.Name != t.r.names.coordinator {
		return
	}
	t.mu.Lock()
	switch ev.Kind {
	case lease.EventPut:
		if ev.Record.Token >= t.boss.Token {
			t.boss = ev.Record
		}
	case lease.EventDelete:
		t.boss = lease.Record{Token: t.boss.Token}
	}
	t.mu.Unlock()
	t.r.post(&bossNoticed{})
	t.tell()
}

// sync notes that a snapshot is complete.
func (t *table) sync(what *bool) {
	t.mu.Lock()
	was := t.synced.shards && t.synced.regions
	*what = true
	if !was && t.synced.shards && t.synced.regions {
		close(t.ready)
	}
	t.mu.Unlock()
	t.tell()
}

// onChange has f called after every change; it must not block.
func (t *table) onChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = append(t.changed, f)
}

func (t *table) tell() {
	t.mu.Lock()
	fs := t.changed
	t.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// record returns who holds a shard.
func (t *table) record(i int) (lease.Record, bool) {
	s := t.standing(i)
	return s.rec, s.held
}

func (t *table) standing(i int) standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shards[i]
}

// all returns a copy of all shards.
func (t *table) all() []standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.shards)
}

// seat is what decides about one shard.
type seat struct {
	owner string      // the incarnation that holds it; empty: nobody's
	last  lease.Token // the highest that was seen
}

// seats returns those of all shards. There may be very many, and the coordinator asks at
// each change: it is all that it needs.
func (t *table) seats() []seat {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]seat, len(t.shards))
	for i := range t.shards {
		s := &t.shards[i]
		if all[i].last = s.last; s.held {
			all[i].owner = s.rec.Owner.Incarnation
		}
	}
	return all
}

// participants returns who takes part, those that host only if hosts is set,
// sorted by their tokens: the oldest first.
func (t *table) participants(hosts bool) []registration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rs []registration
	for _, g := range t.regions {
		if g.hosts || !hosts {
			rs = append(rs, g)
		}
	}
	slices.SortFunc(rs, func(a, b registration) int {
		if a.token != b.token {
			if a.token < b.token {
				return -1
			}
			return 1
		}
		return strings.Compare(a.owner.Incarnation, b.owner.Incarnation)
	})
	return rs
}

// direct reports whether a node takes messages by the short way, if that is known.
func (t *table) direct(incarnation string) (can, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, known := t.regions[incarnation]
	return g.plain, known
}

// here reports whether no record says that a life is at another address than n does:
// then n speaks in its name.
func (t *table) here(n *wire.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, known := t.regions[n.GetIncarnation()]
	return n != nil && (!known || g.owner.Address == n.Address)
}

// bossOf returns who coordinates; false if nobody does.
func (t *table) bossOf() (lease.Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boss, t.boss.Name != ""
}
