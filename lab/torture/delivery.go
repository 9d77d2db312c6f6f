//go:build linux

package torture

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

// calmFor is where a loss bears on what was asked in a calm: from the last answer before it, to the
// last moment at which one that was asked in it is waited for.
func calmFor(s span) span { return span{s.from - calmPause, s.to + answerWithin} }

// pairKey is a sender and what it asks: order is kept between the two.
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

// delivery is I5: of what was asked in calm.
func (j *judgement) delivery(ev evidence) {
	type ask struct {
		pairKey
		seq uint64
	}
	type fate struct {
		calm     int
		handled  []seen
		answered bool
	}
	fates := map[ask]*fate{}
	var calm []seen
	var breaches []breach
	for _, e := range ev.entries {
		if e.kind == asked {
			j.asked++
			if n := slices.IndexFunc(ev.calms, func(s span) bool { return s.has(e.at) }); n >= 0 {
				calm = append(calm, e)
				fates[ask{pairKey{e.sender, e.target}, e.seq}] = &fate{calm: n}
			}
		}
	}
	j.calm = len(calm)
	twice := map[ask]bool{}
	highest := map[pairKey]seen{} // of those asked in calm
	var unruly []span             // when order was said not to be kept, by name
	unrulyName := []uint16{}
	for _, e := range ev.entries {
		if e.kind == disordered {
			unruly, unrulyName = append(unruly, span{e.at - 3*time.Second, e.at + 3*time.Second}), append(unrulyName, e.name)
		}
	}
	excused := func(e seen) bool {
		for i, s := range unruly {
			if unrulyName[i] == e.name && s.has(e.at) {
				return true
			}
		}
		return false
	}
	for _, e := range ev.entries {
		key := ask{pairKey{e.sender, e.target}, e.seq}
		switch {
		case e.kind == answered:
			j.answered++
			if f := fates[key]; f != nil {
				f.answered = true
			}
		case (e.kind == handled || e.kind == overran) && e.seq > 0:
			j.handled++
			if twice[key] {
				j.twice++
			}
			twice[key] = true
			f := fates[key]
			if f == nil {
				continue
			}
			f.handled = append(f.handled, e)
			h := highest[key.pairKey]
			switch {
			case len(f.handled) > 1 && excused(e), len(f.handled) == 1 && e.seq < h.seq && excused(e):
				j.unordered++
			case len(f.handled) > 1:
				breaches = append(breaches, breach{f.calm, ruleDoubled, "an ask in calm was handled twice", f.handled})
			case e.seq < h.seq:
				breaches = append(breaches, breach{f.calm, ruleOrder, "an ask in calm was overtaken", []seen{h, e}})
			}
			if e.seq > h.seq {
				highest[key.pairKey] = e
			}
		}
	}
	for _, e := range calm {
		f := fates[ask{pairKey{e.sender, e.target}, e.seq}]
		if len(f.handled) == 0 {
			breaches = append(breaches, breach{f.calm, ruleLost, "an ask in calm was never handled", []seen{e}})
		} else if !f.answered {
			j.calmUnanswered++
		}
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
