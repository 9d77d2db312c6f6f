//go:build linux

package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// functionCall is one call of one process, in the name of an owner.
type functionCall struct {
	process   uint32
	op        callOp
	out       callOutcome
	key       uint16
	owner, to uint16 // to: of a transfer
	ttl       time.Duration
	sent      time.Duration
	end       time.Duration // when it returned, or its process was gone
	expires   time.Duration // of isYes: for how long it was promised
	token     uint64        // of an acquire
	old, new  uint64        // tokens, if the store said that it moved the record
	freed     bool          // the store said that it removed the record
}

func (c functionCall) String() string {
	return fmt.Sprintf("%.6f to %.6f, process %d: %v of key %d by %s to %s for %v: %d, token %d until %.6f, moved %d to %d", c.sent.Seconds(),
		c.end.Seconds(), c.process, c.op, c.key, ownerName(c.owner), ownerName(c.to), c.ttl, c.out, c.token, c.expires.Seconds(), c.old, c.new)
}

// winner is who has the key by the call.
func (c functionCall) winner() (owner uint16, ok bool) {
	switch {
	case c.out != isYes:
		return 0, false
	case c.op == opTransfer:
		return c.to, true
	}
	return c.owner, c.op == opAcquire || c.op == opRenew
}

// ends reports whether the call, which is made in owner's name or hands over to it, may end what
// that owner was promised for a TTL.
func (c functionCall) ends(owner uint16, ttl time.Duration) bool {
	switch c.op {
	case opRelease:
		return c.owner == owner
	case opTransfer:
		return c.owner == owner || c.to == owner && c.ttl != ttl
	case opAcquire, opRenew:
		return c.owner == owner && c.ttl != ttl
	}
	return false
}

// keyChange is what became of a key's record, by etcd's own history.
type keyChange struct {
	revision uint64
	owner    string // empty: it is gone
}

// functionEvidence is what the serverless check is judged by.
type functionEvidence struct {
	entries []entry
	history map[uint16][]keyChange // by key, in order
}

// functionVerdict is what it shows.
type functionVerdict struct {
	overlaps []string // two owners of a key at one time
	shrunk   []string // tokens that did not grow
	gaps     []string // transfers that left a moment in which the key was nobody's
	untrue   []string // what was told to be held, and etcd never had
	broken   int      // calls that failed as none may

	calls              map[callOp]map[callOutcome]int
	promises, stood    int             // to have a key; those that nobody ended at once in that owner's name
	moves, repeated    int             // transfers that moved a record; that found it moved
	changes            int             // of owner, one after the other
	followed           []time.Duration // from a move until who was queued knew that it has the key
	died, diedInCalls  int             // with SIGKILL; of all, in the middle of a call
	overdue            int             // killed, as they did not end
	processes, started int
	lives              []time.Duration
	took               map[callOp][]time.Duration
}

// judgeFunctions applies all rules.
func judgeFunctions(ev functionEvidence) *functionVerdict {
	v := &functionVerdict{calls: map[callOp]map[callOutcome]int{}, took: map[callOp][]time.Duration{}}
	byKey := map[uint16][]functionCall{}
	for _, c := range v.collect(ev.entries) {
		byKey[c.key] = append(byKey[c.key], c)
		if v.calls[c.op] == nil {
			v.calls[c.op] = map[callOutcome]int{}
		}
		v.calls[c.op][c.out]++
		if c.out != isUnknown {
			v.took[c.op] = append(v.took[c.op], c.end-c.sent)
		}
	}
	for key, calls := range byKey {
		v.exclusive(calls)
		v.growing(calls)
		v.gapless(calls, ev.history[key])
	}
	return v
}

// collect makes calls of entries. One that never returned ends with its process.
func (v *functionVerdict) collect(entries []entry) (calls []functionCall) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	open, births := map[uint32]*functionCall{}, map[uint32]time.Duration{}
	for _, e := range entries {
		c := open[e.sender]
		switch e.kind {
		case functionBorn:
			v.started++
			births[e.sender] = e.at
		case callBegan:
			_, o, owner, to := unpackBegan(e.seq)
			open[e.sender] = &functionCall{process: e.sender, op: o, key: e.name, owner: owner, to: to, ttl: e.sent, sent: e.at}
		case callEnded:
			if c != nil {
				_, c.out = unpackEnded(e.seq)
				c.end, c.token, c.expires = e.at, e.token, e.sent
				calls = append(calls, *c)
				delete(open, e.sender)
			}
		case recordMoved:
			if c != nil {
				c.old, c.new = e.token, e.seq
			}
		case recordFreed:
			if c != nil {
				c.freed = true
			}
		case callBroken:
			v.broken++
		case functionDead:
			v.processes++
			if c != nil {
				c.out, c.end = isUnknown, e.at
				calls = append(calls, *c)
				delete(open, e.sender)
				v.diedInCalls++
			}
			switch e.seq {
			case 1:
				v.died++
			case 2:
				v.overdue++
			}
			if at, ok := births[e.sender]; ok {
				v.lives = append(v.lives, e.at-at)
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b functionCall) int { return cmp.Compare(a.sent, b.sent) })
	return calls
}

// belief is when an owner may count on a key.
type belief struct {
	from, until time.Duration
	owner       uint16
	by          functionCall
}

// exclusive: while one owner may count on the key no other may. What is promised ends early if
// somebody, in that owner's name, began to give it up afterwards, or was at it meanwhile. A call
// that had returned or whose process was gone before the promise was asked for changes nothing of
// it, though its request may land yet.
func (v *functionVerdict) exclusive(calls []functionCall) {
	byOwner := map[uint16][]functionCall{} // those that may end something
	for _, c := range calls {
		if c.op != opOwner {
			byOwner[c.owner] = append(byOwner[c.owner], c)
		}
		if c.op == opTransfer && c.to != c.owner {
			byOwner[c.to] = append(byOwner[c.to], c)
		}
	}
	var all []belief
	for _, c := range calls {
		owner, ok := c.winner()
		if !ok {
			continue
		}
		v.promises++
		b := belief{from: c.end, until: c.expires, owner: owner, by: c}
		for _, g := range byOwner[owner] {
			if g != c && g.end > c.sent && g.ends(owner, c.ttl) {
				b.until = min(b.until, max(g.sent, b.from))
			}
		}
		if b.until > b.from {
			v.stood++
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	last := map[uint16]belief{}
	for _, b := range all {
		for owner, l := range last {
			if owner != b.owner && l.until > b.from {
				v.overlaps = append(v.overlaps, fmt.Sprintf("%v\n    and\n  %v", l.by, b.by))
			}
		}
		if l, ok := last[b.owner]; !ok || b.until > l.until {
			last[b.owner] = b
		}
	}
}

// growing: what is asked for after another was told has no lower token, and a higher one if it is
// another's.
func (v *functionVerdict) growing(calls []functionCall) {
	var told []functionCall
	for _, c := range calls {
		if c.op == opAcquire && c.out == isYes {
			told = append(told, c)
		}
	}
	byEnd := slices.Clone(told)
	slices.SortFunc(byEnd, func(a, b functionCall) int { return cmp.Compare(a.end, b.end) })
	var highest functionCall
	n := 0
	for _, c := range told { // in the order in which they were asked
		for ; n < len(byEnd) && byEnd[n].end < c.sent; n++ {
			if byEnd[n].token > highest.token {
				highest = byEnd[n]
			}
		}
		if c.token == 0 || c.token < highest.token || c.token == highest.token && c.owner != highest.owner {
			v.shrunk = append(v.shrunk, fmt.Sprintf("%v\n    and then\n  %v", highest, c))
		}
	}
	owners := map[uint64]functionCall{}
	for _, c := range told {
		if o, ok := owners[c.token]; ok && o.owner != c.owner {
			v.shrunk = append(v.shrunk, fmt.Sprintf("one token of two owners: %v\n    and\n  %v", o, c))
		}
		owners[c.token] = c
	}
}

// gapless: in etcd's history what is moved stands directly behind what it was moved from, and each
// token that an owner was told is of a record of its own.
func (v *functionVerdict) gapless(calls []functionCall, history []keyChange) {
	at := map[uint64]int{}
	for i, x := range history {
		if x.owner != "" {
			at[x.revision] = i
		}
		if i > 0 && x.owner != "" && x.owner != lastOwner(history[:i]) {
			v.changes++
		}
	}
	for _, c := range calls {
		switch {
		case c.op == opTransfer && c.freed:
			v.gaps = append(v.gaps, "the record was removed: "+c.String())
		case c.op == opTransfer && c.new > 0:
			v.moves++
			i, ok := at[c.new]
			if !ok || i == 0 || history[i].owner != ownerName(c.to) || history[i-1].revision != c.old || history[i-1].owner != ownerName(c.owner) {
				v.gaps = append(v.gaps, "not from the one to the other: "+c.String())
				continue
			}
			for _, f := range calls { // who finds itself the owner, by the token that the move gave it
				if f.op == opAcquire && f.out == isYes && f.token == c.new {
					v.followed = append(v.followed, f.end-c.end)
					break
				}
			}
		case c.op == opTransfer && c.out == isYes:
			v.repeated++
		case c.op == opAcquire && c.out == isYes:
			if i, ok := at[c.token]; !ok || history[i].owner != ownerName(c.owner) {
				v.untrue = append(v.untrue, c.String())
			}
		}
	}
}

// lastOwner is the one whose record stood last, also if it is gone.
func lastOwner(history []keyChange) string {
	for _, x := range slices.Backward(history) {
		if x.owner != "" {
			return x.owner
		}
	}
	return ""
}
