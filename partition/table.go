package partition

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// The leases of one Name are under one prefix: own/<key>, ready/<key>, sick/<key>/<incarnation>, and of
// each node that takes part host/<id>/<incarnation> and, with a Count, counts/<id>/<incarnation>.
const (
	kindOwn    = "own"
	kindReady  = "ready"
	kindSick   = "sick"
	kindHost   = "host"
	kindCounts = "counts" // the parent of what the node owns
)

// The metadata of these leases.
const (
	keyLayout = "layout" // of host and counts
	keyCame   = "came"   // of host: when it was started, by the node's clock, in microseconds since 1970
	keyOffer  = "offer"  // of ready
)

// host is a node that takes part.
type host struct {
	owner  lease.Owner
	came   string
	layout string
	since  time.Time // when it was first seen; zero: it was there before this node looked
}

// table is what the records say. A record that is zero stands for none; one without an owner can't
// be read, and is held all the same.
type table struct {
	layout
	prefix string
	self   string // the incarnation of this node

	synced bool
	own    []lease.Record
	ready  []lease.Record
	sick   map[int]map[string]bool // incarnations that can't run it, by partition
	hosts  map[string]host         // by the name of the lease
	newest string                  // the layout of the node that was started last: it counts for all
}

func (t *table) clear() {
	t.synced = false
	t.own, t.ready = make([]lease.Record, len(t.keys)), make([]lease.Record, len(t.keys))
	t.sick, t.hosts, t.newest = map[int]map[string]bool{}, map[string]host{}, ""
}

// hear takes up an event. It returns the partition that changed its owner, or for which a node became
// ready, or no more; or -1.
func (t *table) hear(ev store.Event) int {
	rec := ev.Record
	name := rec.Name
	switch ev.Kind {
	case store.EventReset: // what stands now follows, and no EventSynced
		synced := t.synced
		t.clear()
		t.synced = synced
		return -1
	case store.EventSynced:
		t.synced = true
		return -1
	case store.EventBad:
		rec = lease.Record{Name: name}
	case store.EventDelete:
		rec = lease.Record{}
	}
	kind, key, _ := strings.Cut(strings.TrimPrefix(name, t.prefix), "/")
	key, more, _ := strings.Cut(key, "/")
	n, known := t.number[key]
	switch {
	case kind == kindHost:
		if delete(t.hosts, name); rec.Owner.Incarnation != "" {
			h := host{owner: rec.Owner, came: rec.Metadata[keyCame], layout: rec.Metadata[keyLayout]}
			if t.synced || rec.Owner.Incarnation == t.self {
				h.since = time.Now()
			}
			t.hosts[name] = h
		}
		t.renew()
	case !known:
	case kind == kindOwn:
		t.own[n] = rec
		return n
	case kind == kindReady:
		t.ready[n] = rec
		return n
	case kind == kindSick && rec.Name != "":
		if t.sick[n] == nil {
			t.sick[n] = map[string]bool{}
		}
		t.sick[n][more] = true
	case kind == kindSick:
		delete(t.sick[n], more)
	}
	return -1
}

func (t *table) renew() {
	t.newest = ""
	last, came := "", ""
	for name, h := range t.hosts {
		if cmp.Or(cmp.Compare(h.came, came), cmp.Compare(name, last)) > 0 {
			last, came, t.newest = name, h.came, h.layout
		}
	}
}

// offerOf writes an offer into metadata, and readOffer reads it from a ready lease's record.
func offerOf(o lease.Offer) map[string]string {
	return map[string]string{keyOffer: fmt.Sprintf("%x %x %d %d", o.Session, o.Nonce, o.TTL, o.Lifetime)}
}

func readOffer(name string, ready lease.Record) (lease.Offer, error) {
	o := lease.Offer{Name: name, Owner: ready.Owner}
	_, err := fmt.Sscanf(ready.Metadata[keyOffer], "%x %x %d %d", &o.Session, &o.Nonce, &o.TTL, &o.Lifetime)
	return o, errors.Join(err, o.Validate())
}
