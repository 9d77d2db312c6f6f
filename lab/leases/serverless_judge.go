//go:build linux

package leases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// functionCall is one call of one process, in the name of an owner.
type functionCall struct {
	Process        uint32
	Op             callOp
	Out            callOutcome
	Key, Owner, To string // To: of a transfer
	TTL, Sent      time.Duration
	End            time.Duration // when it returned, or its process was gone
	Expires        time.Duration // of isYes: for how long it was promised
	Token          uint64        // of an acquire
	Old, New       uint64        // tokens, if the store said that it moved the record
	Freed          bool          // the store said that it removed the record
	Broken         string        // an error that must not be
}

func (c functionCall) String() string {
	return fmt.Sprintf("%.6f to %.6f, process %d: %v of %s by %s to %s for %v: %v, token %d until %.6f, moved %d to %d", c.Sent.Seconds(),
		c.End.Seconds(), c.Process, c.Op, c.Key, c.Owner, c.To, c.TTL, c.Out, c.Token, c.Expires.Seconds(), c.Old, c.New)
}

// winner is who has the key by the call.
func (c functionCall) winner() (owner string, ok bool) {
	switch {
	case c.Out != isYes:
		return "", false
	case c.Op == opTransfer:
		return c.To, true
	}
	return c.Owner, c.Op == opAcquire || c.Op == opRenew
}

// ends reports whether the call, which is made in owner's name or hands over to it, may end what
// that owner was promised for a TTL.
func (c functionCall) ends(owner string, ttl time.Duration) bool {
	switch c.Op {
	case opRelease:
		return c.Owner == owner
	case opTransfer:
		return c.Owner == owner || c.To == owner && c.TTL != ttl
	case opAcquire, opRenew:
		return c.Owner == owner && c.TTL != ttl
	}
	return false
}

// keyChange is what became of a key's record, by etcd's own history.
type keyChange struct {
	revision uint64
	owner    string // empty: it is gone
}

// The rules.
const (
	overlaps = "two owners of a key at one time"
	shrunk   = "tokens that did not grow"
	gaps     = "transfers that left a moment in which the key was nobody's"
	untrue   = "promises that etcd's history does not have"
	broken   = "calls that failed in a way that they must not"
)

// functionVerdict is what it shows.
type functionVerdict struct {
	wrong           map[string][]string // by rule
	calls           map[string]int      // by what they did and returned
	promises, stood int                 // to have a key; those that no call ended at once in that owner's name
	moves           int                 // transfers that moved a record
	changes         int                 // of owner, one after the other
}

// judgeFunctions applies all rules to the calls, and to etcd's history of each key.
func judgeFunctions(calls []functionCall, history map[string][]keyChange) *functionVerdict {
	v := &functionVerdict{calls: map[string]int{}, wrong: map[string][]string{}}
	calls = slices.SortedStableFunc(slices.Values(calls), func(a, b functionCall) int { return cmp.Compare(a.Sent, b.Sent) })
	byKey := map[string][]functionCall{}
	for _, c := range calls {
		byKey[c.Key] = append(byKey[c.Key], c)
		v.calls[string(c.Op)+" "+string(c.Out)]++
		if c.Broken != "" {
			v.breaks(broken, c.Broken)
		}
	}
	for key, calls := range byKey {
		v.exclusive(calls)
		v.growing(calls)
		v.gapless(calls, history[key])
	}
	return v
}

func (v *functionVerdict) breaks(rule, line string) { v.wrong[rule] = append(v.wrong[rule], line) }

// callsOf makes calls of what a process said, which ended at some time: each call is said when it
// begins, and again when it has returned. One that never returned ends with its process.
func callsOf(said []functionCall, ended time.Duration) (calls []functionCall) {
	for i, c := range said {
		switch {
		case c.End != 0:
			calls = append(calls, c)
		case i+1 == len(said):
			c.Out, c.End = isUnknown, ended
			calls = append(calls, c)
		}
	}
	return calls
}

// belief is when an owner may count on a key.
type belief struct {
	from, until time.Duration
	owner       string
	by          functionCall
}

// exclusive: while one owner may count on the key no other may. What is promised ends early if
// somebody, in that owner's name, began to give it up afterwards, or was at it meanwhile. A call
// that had returned or whose process was gone before the promise was asked for changes nothing of
// it, though its request may land yet.
func (v *functionVerdict) exclusive(calls []functionCall) {
	byOwner := map[string][]functionCall{} // those that may end something
	for _, c := range calls {
		byOwner[c.Owner] = append(byOwner[c.Owner], c)
		if c.Op == opTransfer && c.To != c.Owner {
			byOwner[c.To] = append(byOwner[c.To], c)
		}
	}
	var all []belief
	for _, c := range calls {
		owner, ok := c.winner()
		if !ok {
			continue
		}
		v.promises++
		b := belief{from: c.End, until: c.Expires, owner: owner, by: c}
		for _, g := range byOwner[owner] {
			if g != c && g.End > c.Sent && g.ends(owner, c.TTL) {
				b.until = min(b.until, max(g.Sent, b.from))
			}
		}
		if b.until > b.from {
			v.stood++
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	last := map[string]belief{}
	for _, b := range all {
		for owner, l := range last {
			if owner != b.owner && l.until > b.from {
				v.breaks(overlaps, fmt.Sprintf("%v\n    and\n  %v", l.by, b.by))
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
		if c.Op == opAcquire && c.Out == isYes {
			told = append(told, c)
		}
	}
	byEnd := slices.Clone(told)
	slices.SortFunc(byEnd, func(a, b functionCall) int { return cmp.Compare(a.End, b.End) })
	var highest functionCall
	n := 0
	for _, c := range told { // in the order in which they were asked
		for ; n < len(byEnd) && byEnd[n].End < c.Sent; n++ {
			if byEnd[n].Token > highest.Token {
				highest = byEnd[n]
			}
		}
		if c.Token == 0 || c.Token < highest.Token || c.Token == highest.Token && c.Owner != highest.Owner {
			v.breaks(shrunk, fmt.Sprintf("%v\n    and then\n  %v", highest, c))
		}
	}
	owners := map[uint64]functionCall{}
	for _, c := range told {
		if o, ok := owners[c.Token]; ok && o.Owner != c.Owner {
			v.breaks(shrunk, fmt.Sprintf("one token of two owners: %v\n    and\n  %v", o, c))
		}
		owners[c.Token] = c
	}
}

// gapless: in etcd's history what is moved stands directly behind what it was moved from, and each
// token that an owner was told is of a record of its own.
func (v *functionVerdict) gapless(calls []functionCall, history []keyChange) {
	at, last := map[uint64]int{}, "" // the last owner, also if its record is gone
	for i, x := range history {
		if x.owner == "" {
			continue
		}
		if i > 0 && x.owner != last {
			v.changes++
		}
		at[x.revision], last = i, x.owner
	}
	for _, c := range calls {
		switch {
		case c.Op == opTransfer && c.Freed:
			v.breaks(gaps, "the record was removed: "+c.String())
		case c.Op == opTransfer && c.New > 0:
			v.moves++
			i, ok := at[c.New]
			if !ok || i == 0 || history[i].owner != c.To || history[i-1].revision != c.Old || history[i-1].owner != c.Owner {
				v.breaks(gaps, "not from the one to the other: "+c.String())
			}
		case c.Op == opAcquire && c.Out == isYes:
			if i, ok := at[c.Token]; !ok || history[i].owner != c.Owner {
				v.breaks(untrue, c.String())
			}
		}
	}
}

// report prints the figures and judges them.
func (v *functionVerdict) report(run *scene.Run) {
	run.Figure("calls", "%v", v.calls)
	run.Figure("promises of a key; that stood; changes; moves", "%d; %d; %d; %d", v.promises, v.stood, v.changes, v.moves)
	for rule, lines := range v.wrong {
		run.Unsafe("%d %s:\n  %s", len(lines), rule, strings.Join(lines[:min(len(lines), 10)], "\n  "))
	}
}
