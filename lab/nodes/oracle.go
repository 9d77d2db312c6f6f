//go:build linux

package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// span is a part of a run.
type span struct{ from, to time.Duration }

func (s span) has(at time.Duration) bool { return at >= s.from && at < s.to }

// healing is the end of a storm: when the last fault was undone.
type healing struct {
	round int
	at    time.Duration
}

// evidence is all that the oracle goes by.
type evidence struct {
	entries []seen
	names   names
	ttl     time.Duration
	margin  time.Duration // before the end of a session that its holder no longer trusts it
	calms   []span        // in which there were planned moves only: see calmFor
	heals   []healing
	back    time.Duration // bound of a name's silence beyond the TTL after a healing
	History               // the store's own

	apart   bool  // each ask is from a goroutine of its own, and has no order
	whole   bool  // the entries are all there ever were
	loose   bool  // order may be given up, and letters too, if that was counted:
	counted int64 // so many
}

// The rules.
const (
	ruleI1       = "I1: a pass under a token is earlier than all under higher ones"
	ruleI2       = "I2: tokens grow with each change of owner"
	ruleI3       = "I3: no pass after the end of its term"
	ruleFence    = "fence: no stale write is accepted"
	ruleLost     = "I5: a planned move loses nothing"
	ruleDoubled  = "I5: nothing is handled twice"
	ruleOrder    = "I5: order is kept"
	ruleUnknown  = "I5: what is handled was sent"
	ruleState    = "state: what an account begins with was left by one before it, and goes to nobody else"
	ruleI7       = "I7: every name answers again"
	ruleProcess  = "a node ends only when it is told to"
	ruleCalm     = "calm: but for a few, calms are calm"
	ruleDeparted = "a node that leaves in calm leaves in order, and in time"
)

// violation is a rule that was broken, and the lines that show it.
type violation struct {
	rule  string
	text  string
	lines []seen
}

// slow reports whether all that was wrong is that something took too long, as it does on a machine
// that does other things, too.
func (v violation) slow() bool { return v.rule == ruleI7 || v.rule == ruleDeparted }

// judgement is what the evidence shows.
type judgement struct {
	violations []violation
	more       map[string]int // violations of a rule beyond those that are listed

	passes, terms, overruns          int
	asked, handled, answered, twice  int
	calm, calmUnanswered, unordered  int // letters in calm; asks without an answer; out of order after a move that said so
	lost                             int // letters in calm that were never handled
	calms, unquiet, excused          int // calms; in how many a lease ran out; breaches of I5 in these
	wrote, refused, records, moments int // moments: lost under a living process
	confirmed, changes               int // changes of records of names
	left, got                        int // states of accounts
	revoked                          []revocation
	back                             []time.Duration // of every name after each healing
}

// most is how many violations of one rule are listed.
const most = 20

func (j *judgement) violate(rule, text string, lines ...seen) {
	n := 0
	for _, v := range j.violations {
		if v.rule == rule {
			n++
		}
	}
	if n >= most {
		if j.more == nil {
			j.more = map[string]int{}
		}
		j.more[rule]++
		return
	}
	j.violations = append(j.violations, violation{rule, text, lines})
}

// judge applies all rules.
func judge(ev evidence) *judgement {
	j := &judgement{}
	history := newHolds(ev)
	for _, xs := range history.changes {
		j.changes += len(xs)
	}
	slices.SortStableFunc(ev.entries, func(a, b seen) int { return cmp.Compare(a.at, b.at) })
	byName := make([][]seen, ev.names.count())
	for _, e := range ev.entries {
		switch e.kind {
		case passed, handled, overran, began, lost:
			if int(e.name) >= len(byName) {
				j.violate(ruleI1, "a name that there is not", e)
				continue
			}
			byName[e.name] = append(byName[e.name], e)
		case confirmed:
			j.confirmed++
		case wrote:
			j.wrote++
		case refused:
			j.refused++
		}
	}
	for name, es := range byName {
		j.exclusive(history, name, ev.names.text(name), es)
		j.growing(history, name, ev.names.text(name), es)
		j.ended(ev.names.text(name), es)
	}
	j.deadlines(ev)
	j.fence(ev)
	j.delivery(ev)
	j.recovery(ev)
	j.states(ev)
	return j
}

// exclusive is I1, of the entries of one name in the order of time. What an actor
// has while its lease is alive counts like a pass. What the store is to blame for is
// counted apart.
func (j *judgement) exclusive(history holds, number int, name string, es []seen) {
	first, last := map[uint64]seen{}, map[uint64]seen{}
	for _, e := range es {
		switch e.kind {
		case passed:
			j.passes++
		case overran:
			j.overruns++
			continue
		case handled:
		default:
			continue
		}
		if e.token == 0 {
			j.violate(ruleI1, name+": a pass without a token", e)
			continue
		}
		f, ok := first[e.token]
		if !ok {
			first[e.token] = e
		} else if f.node != e.node || f.life != e.life {
			j.violate(ruleI1, name+": two processes under one token", f, e)
		}
		last[e.token] = e
	}
	j.terms += len(first)
	tokens := slices.Sorted(maps.Keys(first))
	// The earliest pass under any higher token, from the highest one down.
	for i := len(tokens) - 2; i >= 0; i-- {
		next := first[tokens[i+1]]
		if i+2 < len(tokens) {
			if f := first[tokens[i+2]]; f.at < next.at {
				next = f
			}
		}
		switch l := last[tokens[i]]; {
		case l.at < next.at:
		case history.revoked(number, l, next):
			j.revoked = append(j.revoked, revocation{name, l, next})
		default:
			j.violate(ruleI1, name+": a pass that is not earlier than one under a higher token", l, next)
		}
		first[tokens[i+1]] = next
	}
}

// growing is I2. What the store is to blame for, exclusive counts.
func (j *judgement) growing(history holds, number int, name string, es []seen) {
	var newest seen // the first of its term
	for _, e := range es {
		if e.kind != began {
			continue
		}
		same := newest.node == e.node && newest.life == e.life
		if newest.at > 0 && (e.token < newest.token && !history.revoked(number, e, newest) || e.token == newest.token && !same) {
			j.violate(ruleI2, name+": a term whose token is not higher than an earlier one's", newest, e)
		}
		if e.token > newest.token {
			newest = e
		}
	}
}

// ended is the half of I3 that the terms tell themselves: who was told that its lease
// is lost lets nothing pass.
func (j *judgement) ended(name string, es []seen) {
	type term struct {
		token      uint64
		node, life int
	}
	over := map[term]seen{}
	for _, e := range es {
		t := term{e.token, e.node, e.life}
		l, was := over[t]
		switch {
		case e.kind == lost && !was:
			over[t] = e
			j.moments++
		case (e.kind == passed || e.kind == handled) && was && e.at > l.at:
			j.violate(ruleI3, name+": a pass after the loss was told", l, e)
		}
	}
}

// deadlines is the other half: nothing passes on a node later than the TTL, less the
// margin, after the last request to the store that was confirmed until then.
func (j *judgement) deadlines(ev evidence) {
	type process struct{ node, life int }
	until, by := map[process]time.Duration{}, map[process]seen{}
	for _, e := range ev.entries {
		p := process{e.node, e.life}
		switch e.kind {
		case confirmed:
			if end := e.sent + time.Duration(e.seq) - ev.margin; end > until[p] {
				until[p], by[p] = end, e
			}
		case passed, handled:
			if e.at > until[p] {
				j.violate(ruleI3, fmt.Sprintf("%s: a pass %v after the last confirmed session has ended", ev.names.text(int(e.name)), e.at-until[p]), by[p], e)
			}
		}
	}
}

// fence looks at the store's history of the journal: what is written begins with its token.
func (j *judgement) fence(ev evidence) {
	ws := slices.SortedFunc(slices.Values(ev.Writes), func(a, b Write) int { return cmp.Compare(a.Position, b.Position) })
	highest := map[int]uint64{}
	for _, w := range ws {
		j.records++
		var token uint64
		if _, err := fmt.Sscan(w.Text, &token); err != nil || token == 0 || token < highest[w.Name] {
			j.violate(ruleFence, fmt.Sprintf("%s: revision %d has %q, after token %d", ev.names.text(w.Name), w.Position, w.Text, highest[w.Name]))
			continue
		}
		highest[w.Name] = token
	}
}

// recovery is I7.
func (j *judgement) recovery(ev evidence) {
	for _, h := range ev.heals {
		first := make([]time.Duration, ev.names.count())
		for _, e := range ev.entries {
			if e.kind == swept && e.sent >= h.at && int(e.name) < len(first) && first[e.name] == 0 {
				first[e.name] = e.at
			}
		}
		for name, at := range first {
			switch {
			case at == 0:
				j.violate(ruleI7, fmt.Sprintf("%s never answered after storm %d, healed at %.6f", ev.names.text(name), h.round, h.at.Seconds()))
			case at-h.at > ev.ttl+ev.back:
				j.violate(ruleI7, fmt.Sprintf("%s answered only %v after storm %d was healed at %.6f", ev.names.text(name), at-h.at, h.round, h.at.Seconds()))
				fallthrough
			default:
				j.back = append(j.back, at-h.at)
			}
		}
	}
}

// states judges what was handed over. One account may leave several states under one
// token, when it was started again before the shard moved: the last one counts.
func (j *judgement) states(ev evidence) {
	type key struct {
		target        uint16
		token, number uint64
	}
	left, got := map[key]seen{}, map[key]seen{}
	for _, e := range ev.entries {
		switch e.kind {
		case leftState:
			j.left++
			left[key{e.target, e.token, e.seq}] = e
		case gotState:
			j.got++
			k := key{e.target, e.seq, uint64(e.sender)}
			from, ok := left[k]
			switch before, again := got[k]; {
			case !ok:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state that nobody left before", e.target), e)
			case e.token <= e.seq:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state of the same or a later host", e.target), from, e)
			case again:
				j.violate(ruleState, fmt.Sprintf("target %d begins with a state that another began with", e.target), from, before, e)
			}
			got[k] = e
		}
	}
}

// revocation is an overlap that the store is to blame for.
type revocation struct {
	name       string
	last, next seen
}

// holds is the store's history of the records, and what the nodes asked of it.
type holds struct {
	changes   map[int][]Change // by name, in order
	confirmed map[uint64][]seen
	given     map[int][]seen           // by name
	closed    map[uint64]time.Duration // when that was asked first
	ttl       time.Duration
}

func newHolds(ev evidence) holds {
	h := holds{map[int][]Change{}, map[uint64][]seen{}, map[int][]seen{}, map[uint64]time.Duration{}, ev.ttl}
	byToken := func(a, b Change) int { return cmp.Compare(a.Token, b.Token) }
	sorted := slices.SortedFunc(slices.Values(ev.Changes), byToken)
	for _, x := range sorted {
		if name, ok := ev.names.number(x.Lease); ok {
			h.changes[name] = append(h.changes[name], x)
		}
	}
	for _, e := range ev.entries {
		switch e.kind {
		case confirmed:
			h.confirmed[e.token] = append(h.confirmed[e.token], e)
		case gaveUp:
			h.given[int(e.name)] = append(h.given[int(e.name)], e)
		case closed:
			if _, ok := h.closed[e.token]; !ok {
				h.closed[e.token] = e.at
			}
		}
	}
	return h
}

// revoked reports whether the store is to blame that work under a higher token, next, began
// before the last work under another: it removed the record though it had confirmed
// its session for longer than until next, and nobody had asked it to. A member of etcd
// that led, was paused, and goes on, does so (docs/etcd.md). A record that was written over
// was not removed; and where a node had asked for an end by then, of whatever token, the store is
// not to blame. What was asked later, as by a holder that has learnt of it, did not cause it: nodes
// note a request before they send it.
func (h holds) revoked(name int, last, next seen) bool {
	xs := h.changes[name]
	i := slices.IndexFunc(xs, func(x Change) bool { return uint64(x.Token) == last.token })
	if i < 0 || i+1 == len(xs) {
		return false
	}
	session, end := xs[i].Session, xs[i+1]
	if session == 0 || end.Session != 0 || uint64(end.Token) > next.token {
		return false
	}
	if at, ok := h.closed[session]; ok && at <= next.at {
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
		return e.at <= next.at && (e.token == last.token || e.at >= since)
	})
}

// A calm has planned moves only, by the plan. On a machine that is starved a lease may run out in
// it all the same, for want of a processor: then it was that, by the journal of the node itself,
// that cost an ask, and no planned move. What is broken in such a calm is excused, and counted, in
// few of all calms: see mostExcused. Losses of other kinds excuse nothing.

// calmPause is the time between the last answer that was waited for after a storm and a calm.
const calmPause = time.Second

// calmAnswer is for how long answers are waited for after a calm.
const calmAnswer = 2 * time.Second

// calmFor is where a loss bears on what was asked in a calm: from the last answer before it, to the
// last moment at which one that was asked in it is waited for.
func calmFor(s span) span { return span{s.from - calmPause, s.to + calmAnswer} }

// pairKey is a sender and its target: order is kept between the two.
type pairKey struct {
	sender uint32
	target uint16
}

// letterKey is a letter.
type letterKey struct {
	pairKey
	seq uint64
}

func (e seen) letter() letterKey { return letterKey{pairKey{e.sender, e.target}, e.seq} }

// breach is a violation of what a calm promises.
type breach struct {
	calm  int // by number
	rule  string
	text  string
	lines []seen
}

// fate is what became of a letter.
type fate struct {
	asked, first int32 // the entries, by number from 1: sent, and handled for the first time
	calm         int16 // the calm in which it was sent, by number from 1
	times        uint16
	answered     bool
}

// delivery is I5: of what was sent in calm.
func (j *judgement) delivery(ev evidence) {
	fates := map[pairKey][]fate{}
	of := func(e seen) *fate {
		k := pairKey{e.sender, e.target}
		if missing := int(e.seq) + 1 - len(fates[k]); missing > 0 {
			fates[k] = append(fates[k], make([]fate, missing)...)
		}
		return &fates[k][e.seq]
	}
	type unruly struct {
		span
		name uint16
	}
	var spans []unruly // when order was said not to be kept
	for i, e := range ev.entries {
		switch e.kind {
		case asked:
			j.asked++
			f := of(e)
			f.asked = int32(i + 1)
			if n := slices.IndexFunc(ev.calms, func(s span) bool { return s.has(e.at) }); n >= 0 {
				j.calm++
				f.calm = int16(n + 1)
			}
		case disordered:
			spans = append(spans, unruly{span{e.at - 3*time.Second, e.at + 3*time.Second}, e.name})
		}
	}
	excused := func(e seen) bool {
		return slices.ContainsFunc(spans, func(u unruly) bool { return u.name == e.name && u.has(e.at) })
	}
	var breaches []breach
	highest := map[pairKey]int{} // the entry of the highest letter of those sent in calm
	for i, e := range ev.entries {
		switch {
		case e.kind == answered:
			j.answered++
			of(e).answered = true
		case (e.kind == handled || e.kind == overran) && e.seq > 0:
			j.handled++
			f := of(e)
			if f.times++; f.times > 1 {
				j.twice++
			} else {
				f.first = int32(i + 1)
			}
			if ev.whole && f.asked == 0 {
				j.violate(ruleUnknown, "a letter was handled that nobody sent", e)
			}
			if f.calm == 0 {
				continue
			}
			k := pairKey{e.sender, e.target}
			h, later := highest[k]
			later = later && e.seq < ev.entries[h].seq && !(ev.apart && asks(e.sender))
			switch {
			case (f.times > 1 || later) && excused(e):
				j.unordered++
			case f.times > 1:
				breaches = append(breaches, breach{int(f.calm) - 1, ruleDoubled, "a letter was handled twice", []seen{ev.entries[f.first-1], e}})
			case later && ev.loose:
				j.unordered++
			case later:
				breaches = append(breaches, breach{int(f.calm) - 1, ruleOrder, "a letter was overtaken", []seen{ev.entries[h], e}})
			}
			if !later {
				highest[k] = i
			}
		}
	}
	for k, fs := range fates {
		for _, f := range fs {
			if f.calm > 0 && f.times == 0 {
				j.lost++
				if !ev.loose {
					breaches = append(breaches, breach{int(f.calm) - 1, ruleLost, "a letter was never handled", []seen{ev.entries[f.asked-1]}})
				}
			} else if f.calm > 0 && asks(k.sender) && !f.answered {
				j.calmUnanswered++
			}
		}
	}
	if ev.loose && int64(j.lost) > ev.counted {
		j.violate(ruleLost, fmt.Sprintf("%d letters were lost, and only %d counted as given up", j.lost, ev.counted))
	}
	j.blame(ev, breaches)
}

// expired are the leases that were noted as having run out, and the sessions that ended for their node as it had no
// confirmation in time: under these, too, where nothing was at work that would note its loss. The
// time is that of the loss.
func expired(ev evidence) (all []seen) {
	type process struct{ node, life int }
	type session struct {
		process
		id uint64
	}
	trusted := map[session]seen{} // at: until when
	over := map[session]bool{}    // closed: what is confirmed late is nothing
	going := map[process]time.Duration{}
	for _, e := range ev.entries { // in the order of time
		p := process{e.node, e.life}
		going[p] = e.at
		of := session{p, e.token}
		switch e.kind {
		case lost:
			if e.seq == ranOut {
				all = append(all, e)
			}
		case closed:
			delete(trusted, of)
			over[of] = true
		case confirmed:
			if over[of] {
				continue
			}
			was, until := trusted[of], e
			if was.at > 0 && e.at > was.at {
				all = append(all, was)
			}
			until.at = e.sent + time.Duration(e.seq) - ev.margin
			if until.at > was.at {
				trusted[of] = until
			}
		}
	}
	for of, was := range trusted {
		if going[of.process] > was.at { // and the process did not end before
			all = append(all, was)
		}
	}
	return all
}

// mostExcused is in how many of so many calms something may be excused: a tenth; but in one of four.
func mostExcused(calms int) int { return max(calms/10, min(1, calms/4)) }

// blame excuses the breaches of calms in which a lease ran out, if these are few.
func (j *judgement) blame(ev evidence, breaches []breach) {
	j.calms = len(ev.calms)
	losses := make([][]seen, len(ev.calms)) // by number
	for _, e := range expired(ev) {
		for n, s := range ev.calms {
			if calmFor(s).has(e.at) {
				losses[n] = append(losses[n], e)
			}
		}
	}
	for _, ls := range losses {
		if len(ls) > 0 {
			j.unquiet++
		}
	}
	excused := map[int]bool{} // by number
	for _, b := range breaches {
		if len(losses[b.calm]) == 0 {
			j.violate(b.rule, b.text, b.lines...)
			continue
		}
		j.excused++
		excused[b.calm] = true
	}
	if most := mostExcused(len(ev.calms)); len(excused) > most {
		var lines []seen
		for n := range excused {
			lines = append(lines, losses[n][0])
		}
		j.violate(ruleCalm, fmt.Sprintf("%d of %d would be excused, as a lease ran out in them, %d may be: %d breaches of I5",
			len(excused), len(ev.calms), most, j.excused), lines...)
	}
}
