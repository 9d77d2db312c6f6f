//go:build linux

package nodes

import (
	"fmt"
	"slices"
	"time"
)

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
