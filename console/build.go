package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
)

// seen is all that a Snapshot is made of.
type seen struct {
	at      time.Time
	self    string // the id of the node that serves; empty: none
	from    time.Time
	store   lease.Info
	failure string // why the records may be out of date
	records []lease.Record
	answers map[string]answer    // by incarnation
	events  []happened           // in the order of their times
	missing bool                 // events are
	heard   map[string]time.Time // when nodes answered last that fell silent then
	cfg     Config
	whole   func() Snapshot // of all of that
}

// answer is what came of asking a node.
type answer struct {
	owner  lease.Owner
	report *inquiry.Report // nil: none
	err    error
	took   time.Duration
	offset time.Duration // of its clock
}

// builder makes a Snapshot of what was seen.
type builder struct {
	seen
	lanes  map[string]*lane
	byName map[string]lease.Record
	told   []answer        // with a report, by the ids of their nodes
	unwell map[string]bool // singletons whose Reason has lasted
	differ []Problem       // of partitions
	out    Snapshot
}

// build makes the Snapshot. It is a pure function of what was seen.
func build(in seen) Snapshot {
	b := &builder{seen: in, lanes: lanesOf(in.events, in.heard), byName: map[string]lease.Record{}, unwell: map[string]bool{}}
	for _, r := range in.records {
		b.byName[r.Name] = r
	}
	for _, a := range in.answers {
		if a.report != nil {
			b.told = append(b.told, a)
		}
	}
	slices.SortFunc(b.told, func(x, y answer) int { return byID(Owner(x.owner), Owner(y.owner)) })
	b.out = Snapshot{API: Version, At: in.at, Node: in.self, Answered: []string{}, Missing: []Missing{}, Problems: []Problem{},
		Capabilities: Capabilities{Actions: []string{}}}
	b.cluster()
	b.nodes()
	b.singletons()
	b.leases()
	b.types()
	b.out.Timeline = Timeline{From: in.from, To: in.at, Complete: !in.missing && len(b.out.Missing) == 0 && !b.unfinished(), Lanes: timeline(b.lanes, in.from, in.at)}
	for _, t := range b.out.Types {
		b.out.Timeline.Lanes = append(b.out.Timeline.Lanes, Lane{Name: t.subject(), Kind: "shards", Shards: t.Shards, Unhosted: unhosted(in.events, t.prefix())})
	}
	b.out.Events = slices.DeleteFunc(folded(in.events), func(e Event) bool { return e.At.Before(in.from) })
	b.problems()
	return b.out
}

// lane is that of a name, which may be empty.
func (b *builder) lane(name string) *lane { return cmp.Or(b.lanes[name], &lane{}) }

func byID(x, y Owner) int {
	return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Incarnation, y.Incarnation))
}

// unfinished reports whether a term ended of which its holder did not tell the end: how long its work ran
// is not known.
func (b *builder) unfinished() bool {
	for name, l := range b.lanes {
		if journal.KindOf(name) != "member" && slices.ContainsFunc(l.all, func(s *Span) bool { return s.Ended == "gone" && s.To.After(b.from) }) {
			return true
		}
	}
	return false
}

func (b *builder) cluster() {
	c := Cluster{Groups: []string{}, Store: b.store.Store, TTL: millis(b.store.TTL), Margin: millis(b.store.Margin), StoreFailure: b.cfg.shown(b.failure)}
	for _, a := range b.told {
		if a.owner.ID != b.self {
			off := millis(max(a.offset, -a.offset) + a.took/2)
			if c.ClockError == nil || off > *c.ClockError {
				c.ClockError = &off
			}
		}
	}
	b.out.Cluster = c
}

// named is lease.Name of segments that came from a name.
func named(kind string, segments ...string) string {
	n, _ := lease.Name(kind, segments...)
	return n
}

// segments are those of a lease's name after its kind, unescaped.
func segments(name string) []string {
	all := strings.Split(name, "/")[1:]
	for i, s := range all {
		if plain, err := url.PathUnescape(s); err == nil {
			all[i] = plain
		}
	}
	return all
}

// nodes are the members, those that tell of themselves, and members that went within the hour.
func (b *builder) nodes() {
	known := map[string]*Node{} // by incarnation
	groups := map[string]bool{}
	for _, r := range b.records {
		seg := segments(r.Name)
		if journal.KindOf(r.Name) != "member" || len(seg) != 3 {
			continue
		}
		n := &Node{Owner: Owner(r.Owner), Group: seg[0], Token: uint64(r.Token), Joined: r.Granted, State: "up", Source: "records"}
		_ = json.Unmarshal([]byte(b.cfg.shown(r.Metadata["roles"])), &n.Roles)
		_ = json.Unmarshal([]byte(b.cfg.shown(r.Metadata["labels"])), &n.Labels)
		if s := b.lane(r.Name).current(); s != nil {
			n.Joined = s.From
		}
		rest := strings.TrimPrefix(r.Name, "member/")
		if _, leaving := b.byName["leaving/"+rest]; leaving {
			n.State = "leaving"
		}
		n.Leader = b.byName[named("leader", seg[0])].Owner.Incarnation == r.Owner.Incarnation
		known[r.Owner.Incarnation], groups[seg[0]] = n, true
	}
	for incarnation, a := range b.answers {
		n := known[incarnation]
		if n == nil {
			n = &Node{Owner: Owner(a.owner), State: "up", Source: "records"}
			known[incarnation] = n
		}
		if a.report == nil {
			b.out.Missing = append(b.out.Missing, Missing{a.owner.ID, b.cfg.shown(a.err.Error())})
			continue
		}
		b.out.Answered = append(b.out.Answered, a.owner.ID)
		b.tells(n, a)
	}
	lives := map[string]bool{}
	for _, n := range known {
		lives[n.ID] = true
	}
	for name, l := range b.lanes { // one that went, under an id that did not come back
		if seg := segments(name); journal.KindOf(name) == "member" && len(seg) == 3 && known[seg[2]] == nil && !lives[seg[1]] {
			lives[seg[1]] = true
			known[seg[2]] = &Node{Owner: Owner{ID: seg[1], Incarnation: seg[2]}, Group: seg[0], State: "gone", Source: "records", Joined: l.all[0].From}
		}
	}
	for _, n := range known {
		b.out.Nodes = append(b.out.Nodes, *n)
	}
	slices.SortFunc(b.out.Nodes, func(x, y Node) int { return byID(x.Owner, y.Owner) })
	slices.Sort(b.out.Answered)
	slices.SortFunc(b.out.Missing, func(x, y Missing) int { return cmp.Compare(x.Node, y.Node) })
	b.out.Cluster.Groups = append(b.out.Cluster.Groups, slices.Sorted(maps.Keys(groups))...)
}

// tells adds to a node what it told.
func (b *builder) tells(n *Node, a answer) {
	r := a.report
	n.Source, n.Version, n.Go, n.Started, n.AnsweredMS = "asked", r.Version, r.Go, utc(r.Started), new(millis(a.took))
	n.Group = cmp.Or(n.Group, r.Group)
	switch {
	case r.Draining && n.State == "up":
		n.State = "draining"
	case r.Stopping && n.State == "up":
		n.State = "leaving"
	}
	for _, s := range r.Sessions {
		n.Sessions = append(n.Sessions, Session{s.ID, s.Leases, millis(s.TTL), millis(s.Trusted), s.Failed, b.cfg.shown(s.Error)})
	}
	n.Store = &StoreLatency{P50: millis(r.P50), P99: millis(r.P99), Attempt: millis(r.Attempt), Errors: r.Failed, Slow: r.Attempt > 0 && r.P99 > r.Attempt/3}
	n.Clock = &Clock{Offset: millis(a.offset), Error: millis(a.took / 2)}
	n.DeadLetters, n.Unreached, n.Counters = r.DeadLetters, b.changed(r.Unreached), map[string]int64{}
	for _, s := range r.Singletons {
		addTo(n.Counters, s.Counters)
	}
	for _, t := range r.Types {
		addTo(n.Counters, t.Counters)
	}
	n.Health = &Health{OK: len(r.Unhealthy) == 0, Errors: []string{}}
	for _, why := range r.Unhealthy {
		n.Health.Errors = append(n.Health.Errors, b.cfg.shown(why))
	}
}

// leases are the records, but those that are in the table of a type, and names that are known though they are free.
func (b *builder) leases() {
	b.out.Leases = []Lease{}
	waiting := map[string][]string{}
	trusted := map[[2]string]time.Duration{} // by incarnation and session: by the holder's own word
	free := map[string]bool{}
	for _, a := range b.told {
		for _, name := range a.report.Waiting {
			free[name], waiting[name] = true, append(waiting[name], a.owner.ID)
		}
		for _, s := range a.report.Sessions {
			trusted[[2]string{a.owner.Incarnation, s.ID}] = s.Trusted
		}
	}
	for _, x := range b.out.Singletons {
		free[x.Lease] = true
	}
	for name := range b.lanes {
		if kind := journal.KindOf(name); kind == "application" || kind == "leader" || kind == "singleton" || kind == "coordinator" {
			free[name] = true
		}
	}
	for _, r := range b.records {
		delete(free, r.Name)
		if tabled(r.Name) {
			continue
		}
		l := Lease{Name: r.Name, Kind: journal.KindOf(r.Name), State: "held", Owner: new(Owner(r.Owner)), Token: uint64(r.Token),
			TTL: millis(r.TTL), Session: fmt.Sprintf("%016x", uint64(r.Session)), Left: millis(r.Left), Granted: r.Granted,
			Since: r.Granted, Metadata: b.changed(r.Metadata)}
		if left, known := trusted[[2]string{r.Owner.Incarnation, l.Session}]; known {
			l.Left = millis(left)
		}
		if s := b.lane(r.Name).current(); s != nil && s.Token == l.Token {
			l.Since = s.From
		}
		b.out.Leases = append(b.out.Leases, l)
	}
	for name := range free {
		l := Lease{Name: name, Kind: journal.KindOf(name), State: "free"}
		if h := b.lane(name).history(); len(h) > 0 {
			l.Free, l.Last = h[0].To, h[0].Token
		}
		b.out.Leases = append(b.out.Leases, l)
	}
	for i := range b.out.Leases {
		l := &b.out.Leases[i]
		l.History = b.lane(l.Name).history()
		l.Waiting = waiting[l.Name]
	}
	slices.SortFunc(b.out.Leases, func(x, y Lease) int { return cmp.Compare(x.Name, y.Name) })
}

// singletons are those of the records, and those that nodes tell of.
func (b *builder) singletons() {
	all := map[string]*Singleton{} // by name
	of := func(name, lname string) *Singleton {
		if all[name] == nil {
			all[name] = &Singleton{Name: name, Lease: lname, Phase: "hostless"}
		}
		return all[name]
	}
	for _, r := range b.records {
		if seg := segments(r.Name); journal.KindOf(r.Name) == "singleton" && len(seg) == 1 {
			of(seg[0], r.Name)
		}
	}
	for _, a := range b.told {
		for _, s := range a.report.Singletons {
			x := of(s.Name, s.Lease)
			x.Candidates = append(x.Candidates, Candidate{ID: a.owner.ID, Phase: s.Phase, Eligible: s.WhyNot == "", Why: b.cfg.shown(s.WhyNot)})
			if s.Buffered > 0 {
				if x.Waiting == nil {
					x.Waiting = map[string]int{}
				}
				x.Waiting[a.owner.ID] = s.Buffered
			}
			if x.Counters == nil {
				x.Counters = map[string]int64{}
			}
			addTo(x.Counters, s.Counters)
			if s.Hosts {
				x.Phase, x.Since, x.Stopping = s.Phase, utc(s.Started), utc(s.Stopping)
			}
			if s.Trouble != "" && (s.Hosts || x.Reason == "") {
				x.Reason, b.unwell[x.Name] = a.owner.ID+": "+b.cfg.shown(s.Trouble), s.Unwell
			}
		}
	}
	b.out.Singletons = []Singleton{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x := all[name]
		l := b.lane(x.Lease)
		if r, held := b.byName[x.Lease]; held {
			x.Host, x.Token = new(Owner(r.Owner)), uint64(r.Token)
			if x.Phase == "hostless" && b.answers[r.Owner.Incarnation].report == nil {
				x.Phase = "held" // its host did not say
			}
			if s := l.current(); s != nil && s.Token == x.Token && x.Since.IsZero() {
				x.Since = s.RunFrom
			}
		}
		if last := len(l.all) - 1; last >= 0 && x.Phase == "hostless" {
			x.Hostless, x.LastHost = latest(l.all[last].RunTo, l.all[last].To), l.all[last].Holder
		}
		x.Handovers = l.handovers()
		b.out.Singletons = append(b.out.Singletons, *x)
	}
}

func addTo(sums, counters map[string]int64) {
	for k, n := range counters {
		sums[k] += n
	}
}

// types are the sharded types of the records, and those that nodes tell of.
func (b *builder) types() {
	all := map[[2]string]*Type{} // by group and name
	of := func(group, typ string) *Type {
		k := [2]string{group, typ}
		if all[k] == nil {
			all[k] = &Type{Kind: "shard", Group: group, Type: typ, Nodes: []TypeNode{}}
		}
		return all[k]
	}
	var shards []lease.Record
	for _, r := range b.records {
		kind, seg := journal.KindOf(r.Name), segments(r.Name)
		if len(seg) < 2 || !slices.Contains([]string{"coordinator", "region", "shard"}, kind) {
			continue
		}
		t := of(seg[0], seg[1])
		t.Shards = max(t.Shards, atoi(r.Metadata["shards"]))
		switch kind {
		case "coordinator":
			t.Coordinator, t.Token = new(Owner(r.Owner)), uint64(r.Token)
		case "region":
			_, member := b.byName[named("member", seg[0], r.Owner.ID, r.Owner.Incarnation)]
			t.Nodes = append(t.Nodes, TypeNode{Owner: Owner(r.Owner), Hosts: r.Metadata["hosts"] == "1", Member: member})
		default:
			shards = append(shards, r)
		}
	}
	for _, a := range b.told {
		for _, x := range a.report.Types {
			t := of(x.Group, x.Type)
			t.Shards = max(t.Shards, x.Shards)
		}
	}
	for _, t := range all {
		t.Table = make([]Shard, min(t.Shards, mostShards))
		for i := range t.Table {
			t.Table[i].Shard = i
		}
		t.Unassigned = len(t.Table)
		slices.SortFunc(t.Nodes, func(x, y TypeNode) int { return byID(x.Owner, y.Owner) })
	}
	for _, r := range shards {
		seg := segments(r.Name)
		t := of(seg[0], seg[1])
		n, err := strconv.Atoi(seg[len(seg)-1])
		if err != nil || n < 0 || n >= len(t.Table) {
			continue
		}
		t.Table[n] = Shard{Shard: n, Owner: r.Owner.ID, Token: uint64(r.Token), Since: r.Granted}
		t.Hosted++
		t.Unassigned--
		if x := t.node(r.Owner.Incarnation); x != nil {
			x.Shards++
		}
	}
	for _, a := range b.told {
		for _, x := range a.report.Types {
			of(x.Group, x.Type).add(a, x)
		}
	}
	b.out.Types = b.partitions()
	for _, t := range all {
		b.out.Types = append(b.out.Types, *t)
	}
	for i := range b.out.Types {
		t := &b.out.Types[i]
		for _, e := range slices.Backward(b.events) {
			if len(t.Recent) < 50 && strings.HasPrefix(e.Name, t.prefix()) && endings[e.Kind] == "handed over" {
				t.Recent = append(t.Recent, folded([]happened{e})...)
			}
		}
	}
	slices.SortFunc(b.out.Types, func(x, y Type) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Type, y.Type), cmp.Compare(y.Kind, x.Kind))
	})
}

// mostShards bounds a table.
const mostShards = 1 << 16

// node is the part of a node in t; nil: it has none.
func (t *Type) node(incarnation string) *TypeNode {
	for i := range t.Nodes {
		if t.Nodes[i].Incarnation == incarnation {
			return &t.Nodes[i]
		}
	}
	return nil
}

// add adds what a node told of its part in t.
func (t *Type) add(a answer, x inquiry.Type) {
	t.Entities = new(*cmp.Or(t.Entities, new(int)) + x.Entities)
	t.Waiting = new(*cmp.Or(t.Waiting, new(int)) + x.Waiting)
	if n := t.node(a.owner.Incarnation); n != nil {
		n.Entities, n.Draining, n.Leaving = &x.Entities, x.Draining, a.report.Stopping
	}
	for _, s := range x.Own {
		if s.N < len(t.Table) && (t.Table[s.N].Owner == a.owner.ID || t.Table[s.N].Owner == "") {
			y := &t.Table[s.N]
			y.Phase, y.Entities, y.Waiting = s.Phase, &s.Entities, &s.Waiting
		}
	}
	for _, m := range x.Moves {
		move := Move{Shard: m.Shard, From: m.From, To: m.To, Started: utc(m.Since)}
		if m.Shard < len(t.Table) {
			t.Table[m.Shard].To, move.Phase = m.To, t.Table[m.Shard].Phase
		}
		t.Moves = append(t.Moves, move)
	}
	t.Moving = len(t.Moves)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return min(max(0, n), mostShards)
}

// changed is a copy of a map, with its values as they are shown.
func (b *builder) changed(plain map[string]string) map[string]string {
	all := make(map[string]string, len(plain))
	for k, v := range plain {
		all[k] = b.cfg.shown(v)
	}
	return all
}
