//go:build linux

package nodes

import (
	"cmp"
	"slices"
	"time"
)

// hold is one change of a lease's record, by the store's history: it was written, with
// the session that it belongs to, or is gone (session 0).
type hold struct {
	name     int
	revision int64
	session  uint64
}

// revocation is an overlap that the store is to blame for.
type revocation struct {
	name       string
	last, next seen
}

// holds is the store's history of the records, and what the nodes asked of it.
type holds struct {
	history   map[int][]hold // by name, in order
	confirmed map[uint64][]seen
	given     map[int][]seen // by name
	closed    map[uint64]bool
	ttl       time.Duration
}

func newHolds(ev evidence) holds {
	h := holds{map[int][]hold{}, map[uint64][]seen{}, map[int][]seen{}, map[uint64]bool{}, ev.ttl}
	for _, x := range ev.holds {
		h.history[x.name] = append(h.history[x.name], x)
	}
	for _, xs := range h.history {
		slices.SortFunc(xs, func(a, b hold) int { return cmp.Compare(a.revision, b.revision) })
	}
	for _, e := range ev.entries {
		switch e.kind {
		case confirmed:
			h.confirmed[e.token] = append(h.confirmed[e.token], e)
		case gaveUp:
			h.given[int(e.name)] = append(h.given[int(e.name)], e)
		case closed:
			h.closed[e.token] = true
		}
	}
	return h
}

// revoked reports whether the store is to blame that work under a higher token, next, began
// before the last work under another: it removed the record though it had confirmed
// its session for longer than until next, and nobody had asked it to. A member of etcd
// that led, was paused, and goes on, does so (docs/etcd.md). A record that was written over
// was not removed; and where a node asked for an end, of whatever token, the store is not
// to blame.
func (h holds) revoked(name int, last, next seen) bool {
	xs := h.history[name]
	i := slices.IndexFunc(xs, func(x hold) bool { return x.revision == int64(last.token) })
	if i < 0 || i+1 == len(xs) {
		return false
	}
	session, end := xs[i].session, xs[i+1]
	if session == 0 || end.session != 0 || end.revision > int64(next.token) || h.closed[session] {
		return false
	}
	promise := slices.IndexFunc(h.confirmed[session], func(c seen) bool {
		return c.node == last.node && c.life == last.life && c.sent <= next.at && next.at < c.sent+time.Duration(c.seq)
	})
	if promise < 0 {
		return false
	}
	since := h.confirmed[session][promise].sent - h.ttl // a request may have been on its way for as long
	return !slices.ContainsFunc(h.given[name], func(e seen) bool {
		return e.token == last.token || e.at >= since && e.at <= next.at
	})
}
