package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
)

// subject is what the names of a type's leases begin with.
func (t *Type) subject() string { return named(t.Kind, t.Group, t.Type) }

// prefix is what the names of the leases in its table begin with.
func (t *Type) prefix() string {
	if t.Kind == "partition" {
		return t.subject() + "/own/"
	}
	return t.subject() + "/"
}

// tabled reports whether a lease is in the table of a type: of a shard, or of a partition that is owned,
// or that a node is ready for.
func tabled(name string) bool {
	kind := journal.KindOf(name)
	part := strings.Split(name+"///", "/")[3]
	return kind == "shard" || kind == "partition" && (part == "own" || part == "ready")
}

// spread is the partitions of a name.
type spread struct {
	Type
	rows         map[string]*row // by key
	layouts      map[string]bool // of nodes
	tells        map[string]bool // incarnations of nodes that told
	came, counts string          // of the node that was started last: when, and its layout, which counts
}

// row is a partition.
type row struct {
	Shard
	owner lease.Owner
}

func (s *spread) row(key string) *row {
	if s.rows[key] == nil {
		s.rows[key] = &row{Shard: Shard{Key: key}}
	}
	return s.rows[key]
}

// partitions are those of the records, with what nodes tell of them.
func (b *builder) partitions() []Type {
	all := map[[2]string]*spread{} // by group and name
	of := func(group, name string) *spread {
		k := [2]string{group, name}
		if all[k] == nil {
			all[k] = &spread{Type: Type{Kind: "partition", Group: group, Type: name, Nodes: []TypeNode{}},
				rows: map[string]*row{}, layouts: map[string]bool{}, tells: map[string]bool{}}
		}
		return all[k]
	}
	for _, r := range b.records {
		seg := segments(r.Name)
		if journal.KindOf(r.Name) != "partition" || len(seg) < 4 {
			continue
		}
		switch s := of(seg[0], seg[1]); seg[2] {
		case "host":
			_, member := b.byName[named("member", seg[0], r.Owner.ID, r.Owner.Incarnation)]
			s.Nodes = append(s.Nodes, TypeNode{Owner: Owner(r.Owner), Hosts: true, Member: member})
			s.layouts[r.Metadata["layout"]] = true
			if came := r.Metadata["came"] + " " + r.Name; came > s.came { // as package partition has it
				s.came, s.counts = came, r.Metadata["layout"]
			}
		case "own":
			x := s.row(seg[3])
			x.Owner, x.Token, x.Since, x.owner = r.Owner.ID, uint64(r.Token), r.Granted, r.Owner
		case "ready":
			s.row(seg[3]).To = r.Owner.ID
		}
	}
	for _, a := range b.told {
		for _, x := range a.report.Partitions {
			of(x.Group, x.Type).told(a, x, b.cfg.shown)
		}
	}
	types := []Type{}
	for _, s := range all {
		s.finish()
		types = append(types, s.Type)
		if len(s.layouts) > 1 {
			b.differ = append(b.differ, Problem{Code: "layouts", Severity: Warn, Subject: s.subject(), Text: "has nodes that differ on the partitions",
				Detail: fmt.Sprintf("%.32s counts, as its node was started last: see the layout of the leases %s/host/….", s.counts, s.subject())})
		}
	}
	return types
}

// told adds what a node told of its part: all but what it owns and is just active.
func (s *spread) told(a answer, x inquiry.Type, shown func(string) string) {
	s.tells[a.owner.Incarnation] = true
	s.Shards = max(s.Shards, x.Shards)
	n := s.node(a.owner.Incarnation)
	if n == nil { // it takes no part, or not yet
		s.Nodes = append(s.Nodes, TypeNode{Owner: Owner(a.owner)})
		n = &s.Nodes[len(s.Nodes)-1]
	}
	n.Draining, n.Leaving = x.Draining, a.report.Stopping
	for _, y := range x.Own {
		r := s.row(y.Key)
		if r.Owner == "" || r.owner.Incarnation == a.owner.Incarnation {
			r.Phase, r.Stopping = cmp.Or(y.Phase, r.Phase), utc(y.Stopping)
		}
		if y.Failures > r.Failures {
			r.Failures, r.Error = y.Failures, a.owner.ID+": "+shown(y.Error)
		}
	}
}

// finish makes the table. Of keys that no node owns some are known, from nodes.
func (s *spread) finish() {
	words := append(strings.Fields(s.counts), "", "")
	if words[0] != "" {
		s.Shards = atoi(words[1])
	}
	for i := range s.Shards {
		if words[0] == "count" || words[0] == "daemons" {
			s.row(strconv.Itoa(i))
		}
	}
	rows := slices.SortedFunc(maps.Values(s.rows), func(x, y *row) int { return cmp.Or(cmp.Compare(atoi(x.Key), atoi(y.Key)), cmp.Compare(x.Key, y.Key)) })
	s.Shards = max(s.Shards, len(rows))
	for i := range s.Shards {
		x := &row{}
		if i < len(rows) {
			x = rows[i]
		}
		x.Shard.Shard = i
		if n := s.node(x.owner.Incarnation); n != nil {
			n.Shards++
		}
		if x.Owner == "" {
			s.Unassigned++
		} else if s.tells[x.owner.Incarnation] {
			x.Phase = cmp.Or(x.Phase, "active")
		}
		if x.To == x.Owner {
			x.To = ""
		}
		if x.To != "" {
			s.Moves = append(s.Moves, Move{Shard: i, From: x.Owner, To: x.To, Phase: x.Phase})
		}
		s.Table = append(s.Table, x.Shard)
	}
	s.Hosted, s.Moving = s.Shards-s.Unassigned, len(s.Moves)
	slices.SortFunc(s.Nodes, func(x, y TypeNode) int { return byID(x.Owner, y.Owner) })
}
