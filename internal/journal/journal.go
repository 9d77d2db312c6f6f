// Package journal keeps what happened to the leases of a node: its Keeper's, and the work under them.
// It is bounded and in memory; the console of any node asks for it.
package journal

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Event is something that happened to a lease, or to the work under it.
type Event struct {
	Number uint64 // of the journal's, from 1 on, in the order in which they were added
	At     time.Time
	Kind   string
	Name   string        // the lease's
	Token  uint64        `json:",omitempty"`
	Peer   string        `json:",omitempty"` // another node's id
	Took   time.Duration `json:",omitempty"` // 0: does not apply
	Why    error         `json:"-"`          // it may be users' code: its text is made when it is read
}

// The kinds that more than one package adds, or that a timeline is made of. The events of singletons
// and of sharding have the names of their own kinds beside these.
const (
	Acquired   = "acquired"
	Released   = "released"
	HandedOver = "handed over" // to Peer
	Lost       = "lost"
	Lapsed     = "lapsed" // ended on time, by its policy
	Began      = "began"  // the work under it
	Ended      = "ended"
	Seen       = "seen"      // Peer holds it, by the store's records
	SeenFree   = "seen free" // its record has gone
	Failing    = "renewal failed"
	Away       = "store away"
	Back       = "store back"
	Asked      = "asked" // Why says for what, and by whom
)

// Age is how old an event is that is still told.
const Age = time.Hour

// limits bound the events of a class, so that many of one leave the others theirs.
var limits = [...]int{1024, 2048, 4096}

// The classes of names.
const (
	applications = iota
	shards
	ours
)

// kinds are those of the leases that Holdfast makes.
var kinds = []string{"singleton", "host", "member", "leader", "leaving", "coordinator", "region", "candidate", "objection", "layout", "partition", "shard"}

// KindOf returns what a lease's name says that it is for: its first segment if Holdfast made it,
// else "application".
func KindOf(name string) string {
	if kind, _, ok := strings.Cut(name, "/"); ok && slices.Contains(kinds, kind) {
		return kind
	}
	return "application"
}

func classOf(name string) int {
	switch KindOf(name) {
	case "shard", "partition":
		return shards
	case "application":
		return applications
	}
	return ours
}

// Journal is the journal of a node. The zero value is empty, and a nil one keeps nothing. Safe for
// concurrent use; Add calls no users' code and may be called under any lock.
type Journal struct {
	mu    sync.Mutex
	last  uint64
	rings [len(limits)]ring
	seen  map[string]seen
}

// seen is who holds a name, by the records.
type seen struct {
	token uint64
	peer  string
}

// followed are the kinds of names of which a journal has what others do: so it is known when a node
// that died held them.
var followed = []string{"singleton", "member", "leader", "coordinator"}

// mostSeen bounds how many names are followed.
const mostSeen = 4096

// See notes that another node holds a name, by the store's records, if that is news.
func (j *Journal) See(at time.Time, name string, token uint64, peer string) {
	if slices.Contains(followed, KindOf(name)) && j.news(name, seen{token, peer}) {
		j.Add(Event{At: at, Kind: Seen, Name: name, Token: token, Peer: peer})
	}
}

// Free notes that a name's record has gone, of a token up to revision, if another node held it. Those
// who tell of it may be late: a later record may have been seen.
func (j *Journal) Free(at time.Time, name string, revision uint64) {
	j.mu.Lock()
	was, ok := j.seen[name]
	if ok = ok && was.token <= revision; ok {
		delete(j.seen, name)
	}
	j.mu.Unlock()
	if ok {
		j.Add(Event{At: at, Kind: SeenFree, Name: name, Token: was.token, Peer: was.peer})
	}
}

func (j *Journal) news(name string, now seen) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, ok := j.seen[name]
	if ok && was.token >= now.token {
		return false
	}
	if !ok && len(j.seen) >= mostSeen {
		for any := range j.seen {
			delete(j.seen, any)
			break
		}
	}
	if j.seen == nil {
		j.seen = map[string]seen{}
	}
	j.seen[name] = now
	return true
}

// ring keeps the latest events of a class.
type ring struct {
	events []Event
	next   int    // where the next is written, once it is full
	lost   uint64 // the number of the latest that was overwritten
}

// Add adds an event, whose Number it sets.
func (j *Journal) Add(e Event) {
	if j == nil {
		return
	}
	class := classOf(e.Name)
	r := &j.rings[class]
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number = j.last
	if len(r.events) < limits[class] {
		r.events = append(r.events, e)
		return
	}
	r.lost = r.events[r.next].Number
	r.events[r.next] = e
	r.next = (r.next + 1) % len(r.events)
}

// Since returns the events after a number and not before a time, in their order, the latest most of
// them; and whether some are missing that came after the number.
func (j *Journal) Since(number uint64, from time.Time, most int) (events []Event, missing bool) {
	if j == nil {
		return nil, false
	}
	j.mu.Lock()
	for i := range j.rings {
		r := &j.rings[i]
		missing = missing || r.lost > number && len(r.events) > 0 && r.events[r.next].At.After(from)
		for _, e := range r.events {
			if e.Number > number && !e.At.Before(from) {
				events = append(events, e)
			}
		}
	}
	j.mu.Unlock()
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Number, b.Number) })
	if over := len(events) - most; over > 0 {
		return events[over:], true
	}
	return events, missing
}
