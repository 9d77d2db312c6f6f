package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
)

// happened is an event of some node's journal.
type happened struct {
	inquiry.Event
	node     string        // its id
	boot     string        // its incarnation
	observed bool          // by a node that it did not happen to
	doubt    time.Duration // by how much At may be wrong, as the node's clock was not better known
}

// endings are how a term ends, by the kind of the event.
var endings = map[string]string{journal.Released: "released", journal.HandedOver: "handed over", "handed off": "handed over",
	journal.Lost: "lost", journal.Lapsed: "lapsed", "yielded": "yielded", journal.SeenFree: "gone"}

// lane is the terms of one name, as they are gathered from events in the order of their times.
type lane struct {
	name string
	all  []*Span
	told map[*Span]string // by the holder, of which it is the incarnation: else it is known by the records
	runs bool             // some node told of work under it; else the term is the work
}

// lanesOf gathers the events by the names of leases; those of shards and partitions are left to unhosted.
func lanesOf(events []happened, heard map[string]time.Time) map[string]*lane {
	lanes := map[string]*lane{}
	for _, e := range events {
		if kind := journal.KindOf(e.Name); kind == "shard" || kind == "partition" || kind == "application" && e.Token == 0 { // of the store, or a session
			continue
		}
		l := lanes[e.Name]
		if l == nil {
			l = &lane{name: e.Name, told: map[*Span]string{}}
			lanes[e.Name] = l
		}
		l.take(e)
	}
	for _, l := range lanes {
		l.finish(heard)
	}
	return lanes
}

// last returns the last span that is so; nil if there is none.
func (l *lane) last(is func(*Span) bool) *Span {
	for _, s := range slices.Backward(l.all) {
		if is(s) {
			return s
		}
	}
	return nil
}

// begin adds a span, in the order of tokens.
func (l *lane) begin(s *Span) *Span {
	i := len(l.all)
	for i > 0 && l.all[i-1].Token > s.Token {
		i--
	}
	l.all = slices.Insert(l.all, i, s)
	return s
}

func (l *lane) take(e happened) {
	holder := e.node
	if e.observed {
		holder = e.Peer
	}
	s := l.last(func(s *Span) bool { return s.Token == e.Token })
	if endings[e.Kind] != "" && !e.observed && (s == nil || s.Holder != holder) { // who hands over may tell the next token, or none
		s = l.last(func(s *Span) bool { return s.Holder == holder })
	}
	if s == nil {
		if e.Token == 0 {
			return
		}
		s = l.begin(&Span{Holder: holder, Token: e.Token, From: e.At})
	}
	s.Error = max(s.Error, millis(e.doubt))
	if e.observed && e.Kind == journal.Seen {
		return
	}
	if !e.observed {
		l.told[s] = e.boot
	}
	switch e.Kind {
	case journal.Acquired:
		s.Holder, s.From = holder, e.At
	case "became host", journal.Began:
		if l.runs = true; !s.RunTo.IsZero() { // one more under this term
			s.To, s.Ended = s.RunTo, "restarted"
			s = l.begin(&Span{Holder: holder, Token: s.Token, From: s.RunTo, Error: s.Error})
		}
		s.RunFrom = e.At
	case "child ended", journal.Ended:
		l.runs = true
		s.RunTo, s.Stop = e.At, time.Time{}
	case "not stopping":
		s.Stop = e.At.Add(-e.Took)
	}
	how := endings[e.Kind]
	if s.Ended == "gone" && how != "" && how != "gone" { // others saw the end before the holder told of it
		s.To, s.Ended = time.Time{}, ""
	}
	if how != "" && (s.To.IsZero() || e.At.After(s.To)) && (s.Ended == "" || how != "gone") {
		s.To = e.At
		s.Ended, s.Reason = cmp.Or(s.Ended, how), cmp.Or(s.Reason, e.Reason)
	}
}

// finish closes terms that another followed, and says of holders that are gone when they, by their
// incarnations, were heard of last.
func (l *lane) finish(heard map[string]time.Time) {
	for i := len(l.all) - 2; i >= 0; i-- { // a lease that is handed over gets another token when it is taken up
		if s, next := l.all[i], l.all[i+1]; s.Holder == next.Holder && l.told[s] == "" && l.told[next] != "" {
			next.From = s.From
			l.all = slices.Delete(l.all, i, i+1)
		}
	}
	for i, s := range l.all {
		// That a record is gone may be noticed long after another has taken its place.
		if i+1 < len(l.all) && (s.To.IsZero() || s.Ended == "gone" && s.To.After(l.all[i+1].From)) {
			if s.To = l.all[i+1].From; s.RunTo.IsZero() { // else its holder told
				s.Ended = cmp.Or(s.Ended, "gone")
			}
		}
		if s.RunFrom.IsZero() && (!l.runs || s.Ended == "gone" && s.RunTo.IsZero()) {
			s.RunFrom = s.From
		}
		if s.RunTo.IsZero() && !s.To.IsZero() && !s.RunFrom.IsZero() {
			last := heard[l.told[s]]
			if s.RunTo = s.To; s.Ended == "gone" && last.After(s.RunFrom) && last.Before(s.To) {
				s.RunTo = last
			}
		}
	}
}

// current returns the span of the term that stands; nil if none does.
func (l *lane) current() *Span {
	if len(l.all) == 0 || !l.all[len(l.all)-1].To.IsZero() {
		return nil
	}
	return l.all[len(l.all)-1]
}

// mostTerms bounds the history of a lease, and the hand-overs of a singleton.
const mostTerms = 20

// history lists the latest terms, newest first.
func (l *lane) history() (h []Span) {
	for _, s := range slices.Backward(l.all[max(0, len(l.all)-mostTerms):]) {
		h = append(h, *s)
	}
	return h
}

// handovers lists the changes of host, newest first.
func (l *lane) handovers() (all []Handover) {
	for i := len(l.all) - 1; i > 0 && len(all) < mostTerms; i-- {
		was, is := l.all[i-1], l.all[i]
		if was.Token == is.Token {
			continue
		}
		h := Handover{At: is.RunFrom, From: was.Holder, To: is.Holder, Token: is.Token, Kind: "unplanned", Reason: was.Reason}
		if was.Ended == "handed over" || was.Ended == "released" || was.Ended == "" && !was.RunTo.IsZero() {
			h.Kind = "planned"
		}
		if h.At.IsZero() {
			h.At = is.From
		}
		if !was.RunTo.IsZero() && !is.RunFrom.IsZero() {
			h.Gap = new(millis(max(0, is.RunFrom.Sub(was.RunTo)))) // less: their clocks differ
		}
		all = append(all, h)
	}
	return all
}

// twice returns the most by which the work of two terms of a name overlapped, beyond what clocks that are
// known to so many milliseconds may feign, and how many these were.
func (l *lane) twice(known float64) (most time.Duration, at time.Time, doubt float64) {
	for i := 1; i < len(l.all); i++ {
		was, is := l.all[i-1], l.all[i]
		if was.Token == is.Token || is.RunFrom.IsZero() || was.RunTo.IsZero() || was.Ended == "gone" {
			continue
		}
		may := max(known, was.Error+is.Error)
		if d := was.RunTo.Sub(is.RunFrom); d > most && millis(d) > may {
			most, at, doubt = d, is.RunFrom, may
		}
	}
	return most, at, doubt
}

// unhosted tells how many shards of a type, or partitions, whose names begin with prefix, had no host, by the events.
func unhosted(events []happened, prefix string) (steps []Unhosted) {
	host := map[string]string{} // by shard: the holder's incarnation; "": none
	missing := 0
	set := func(name, id string, at time.Time) {
		was, known := host[name]
		if host[name] = id; known && (was == "") == (id == "") || !known && id != "" {
			return
		}
		if missing++; id != "" {
			missing -= 2
		}
		if n := len(steps); n > 0 && at.Sub(steps[n-1].At) < time.Millisecond {
			steps[n-1].Count = missing
		} else {
			steps = append(steps, Unhosted{at, missing})
		}
	}
	for _, e := range events {
		switch kind := journal.KindOf(e.Name); {
		case kind == "member" && e.Kind == journal.SeenFree: // with a life of a node, its shards lose their host
			life := e.Name[strings.LastIndexByte(e.Name, '/')+1:]
			for name, id := range host {
				if id == life {
					set(name, "", e.At)
				}
			}
		case !strings.HasPrefix(e.Name, prefix):
		case e.Kind == "hosted", e.Kind == journal.Acquired && kind == "partition":
			set(e.Name, e.boot, e.At)
		case endings[e.Kind] != "" && (host[e.Name] == "" || host[e.Name] == e.boot):
			set(e.Name, "", e.At)
		}
	}
	return steps[max(0, len(steps)-mostSteps):]
}

// mostSteps bounds the steps of a lane of shards, and mostSpans the spans of any lane.
const (
	mostSteps = 600
	mostSpans = 500
)

// timeline draws the lanes of leaders, singletons, members, and those application leases that changed
// hands, from a time on.
func timeline(lanes map[string]*lane, from, to time.Time) []Lane {
	of := map[string]*Lane{}
	for name, l := range lanes {
		kind := journal.KindOf(name)
		if !slices.Contains([]string{"leader", "coordinator", "singleton", "member", "application"}, kind) {
			continue
		}
		if kind == "member" { // the lives of a node are one lane
			name = name[:strings.LastIndexByte(name, '/')]
		}
		for _, s := range l.all[max(0, len(l.all)-mostSpans):] {
			if end := latest(s.To, s.RunTo); !s.To.IsZero() && !end.After(from) || !s.From.Before(to) {
				continue
			}
			if of[name] == nil {
				of[name] = &Lane{Name: name, Kind: kind}
			}
			of[name].Spans = append(of[name].Spans, *s)
		}
	}
	all := []Lane{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		slices.SortStableFunc(of[name].Spans, func(a, b Span) int { return cmp.Compare(a.Token, b.Token) })
		all = append(all, *of[name])
	}
	return all
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func millis(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// folded makes of the events what is shown: those of shards of one kind, type and pair of nodes within a
// second are one with a count, and of an observation by several nodes the first counts.
func folded(events []happened) (all []Event) {
	open := map[string]int{} // by kind, nodes and type
	seen := map[string]bool{}
	for _, e := range events {
		x := Event{ID: e.boot[:min(8, len(e.boot))] + "-" + strconv.FormatUint(e.Number, 10), At: e.At, Node: e.node, Kind: e.Kind, Name: e.Name,
			Token: e.Token, Peer: e.Peer, Reason: e.Reason}
		if e.Took > 0 {
			x.Took = new(millis(e.Took))
		}
		if e.observed {
			key := fmt.Sprint(e.Kind, " ", e.Name, " ", e.Token)
			if seen[key] {
				continue
			}
			seen[key], x.Source = true, "store"
		}
		if tabled(e.Name) {
			typ := e.Name[:strings.LastIndexByte(e.Name, '/')]
			r := strings.Join([]string{e.Kind, e.node, e.Peer, typ}, "\n")
			if i, ok := open[r]; ok && e.At.Sub(all[i].At).Abs() < time.Second {
				all[i].Count = max(1, all[i].Count) + 1
				all[i].Name = typ
				continue
			}
			open[r] = len(all)
		}
		all = append(all, x)
	}
	return all
}
