package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/journal"
)

// The bounds of problems.
const (
	hostlessAfter = 30 * time.Second // as singleton.Health
	stopsWithin   = 10 * time.Second // as partition.Health
	mostNamed     = 20               // partitions of a name; the table has all
	lettersAfter  = 50               // dead letters, since a node started
)

// problems says what needs a look, the worst first.
func (b *builder) problems() {
	add := func(p Problem) { b.out.Problems = append(b.out.Problems, p) }
	if why := b.out.Cluster.StoreFailure; why != "" {
		add(Problem{Code: "store", Severity: Bad, Subject: "store", Since: b.store.Since, Text: "is not reached", Detail: why})
	}
	for _, s := range b.out.Singletons {
		b.ofSingleton(s, add)
	}
	for _, t := range b.out.Types {
		b.ofType(t, add)
	}
	b.out.Problems = append(b.out.Problems, b.differ...)
	for _, n := range b.out.Nodes {
		b.ofNode(n, add)
	}
	b.ofLosses(add)
	if known := b.out.Cluster.ClockError; known != nil {
		for name, l := range b.lanes {
			if d, at, may := l.twice(*known); d > 0 {
				add(Problem{Code: "twice", Severity: Bad, Subject: name, Since: at, Text: "ran twice",
					Detail: fmt.Sprintf("Two terms overlap by %v, as their nodes tell; their clocks differ by %.1f ms at most.", d.Round(time.Millisecond), may)})
			}
		}
	}
	for _, m := range b.out.Missing {
		add(Problem{Code: "no_answer", Severity: Warn, Subject: "node/" + m.Node, Node: m.Node, Text: "does not answer", Detail: m.Error})
	}
	b.ofVersions(add)
	slices.SortStableFunc(b.out.Problems, func(x, y Problem) int {
		return cmp.Or(cmp.Compare(rank(x.Severity), rank(y.Severity)), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Subject, y.Subject))
	})
}

func rank(severity string) int { return slices.Index([]string{Bad, Warn, Info}, severity) }

func (b *builder) ofSingleton(s Singleton, add func(Problem)) {
	waiting := 0
	for _, n := range s.Waiting {
		waiting += n
	}
	detail := strings.TrimSpace(s.Reason)
	if waiting > 0 {
		detail = strings.TrimSpace(fmt.Sprintf("%s %d messages wait.", sentence(detail), waiting))
	}
	switch {
	case !s.Stopping.IsZero() && b.at.Sub(s.Stopping) > hostlessAfter:
		add(Problem{Code: "not_stopping", Severity: Bad, Subject: s.Lease, Node: hostOf(s), Since: s.Stopping, Text: "does not stop",
			Detail: "Its lease is kept until its child has ended. " + detail})
	case s.Phase == "hostless":
		p := Problem{Code: "hostless", Severity: Bad, Subject: s.Lease, Since: s.Hostless, Text: "has no host", Detail: cmp.Or(detail, whyNot(s))}
		if !s.Hostless.IsZero() && b.at.Sub(s.Hostless) <= hostlessAfter {
			p.Severity = Warn
		}
		add(p)
	case b.unwell[s.Name]:
		add(Problem{Code: "unwell", Severity: Bad, Subject: s.Lease, Node: hostOf(s), Text: "is not well", Detail: detail})
	}
}

// whyNot says why no candidate hosts a singleton.
func whyNot(s Singleton) string {
	var all []string
	for _, c := range s.Candidates {
		if !c.Eligible {
			all = append(all, c.ID+": "+c.Why)
		}
	}
	switch {
	case len(s.Candidates) == 0:
		return "No node that answered runs a manager of it."
	case len(all) == len(s.Candidates):
		return "No node would host it. " + strings.Join(all, "; ") + "."
	}
	return ""
}

func sentence(s string) string {
	if s != "" && !strings.HasSuffix(s, ".") {
		return s + "."
	}
	return s
}

func hostOf(s Singleton) string { return cmp.Or(s.Host, &Owner{}).ID }

func (b *builder) ofType(t Type, add func(Problem)) {
	subject := t.subject()
	if t.Unassigned > 0 {
		p := Problem{Code: "unassigned", Severity: Warn, Subject: subject, Count: t.Unassigned, Text: fmt.Sprintf("%s no host", plural(t.Unassigned, t.Kind+" has", t.Kind+"s have"))}
		if steps := unhosted(b.events, t.prefix()); len(steps) > 0 {
			if p.Since = steps[len(steps)-1].At; b.at.Sub(p.Since) > b.store.TTL+5*time.Second {
				p.Severity = Bad
			}
		}
		if t.Coordinator == nil && t.Kind == "shard" {
			p.Detail = "No node coordinates the type."
		}
		add(p)
	}
	told := 0
	for _, x := range t.Table {
		name := named(t.Kind, t.Group, t.Type, "own", x.Key) // of a partition; it came from a name
		p := Problem{Code: "failing", Severity: Warn, Subject: name, Node: x.Owner, Text: "fails", Detail: fmt.Sprintf("%s in a row. %s", plural(x.Failures, "time", "times"), sentence(x.Error))}
		if !x.Stopping.IsZero() && b.at.Sub(x.Stopping) > stopsWithin {
			p = Problem{Code: "not_stopping", Severity: Bad, Subject: name, Node: x.Owner, Since: x.Stopping, Text: "does not stop", Detail: "Its lease is kept until its Own has returned."}
		} else if x.Failures == 0 {
			continue
		}
		if told++; told <= mostNamed {
			add(p)
		}
	}
	last, coordinator := map[string]happened{}, named("coordinator", t.Group, t.Type)
	for _, e := range b.events {
		if e.Name == coordinator {
			last[e.Kind] = e
		}
	}
	if e, ok := last["count mismatch"]; ok && e.At.After(last["coordinating"].At) {
		add(Problem{Code: "count_mismatch", Severity: Bad, Subject: subject, Node: e.node, Since: e.At, Text: "has nodes that differ on the number of shards", Detail: e.Reason})
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprint(n, " ", many)
}

func (b *builder) ofNode(n Node, add func(Problem)) {
	on := func(code, severity, text, detail string) {
		add(Problem{Code: code, Severity: severity, Subject: "node/" + n.ID, Node: n.ID, Text: text, Detail: detail})
	}
	for _, s := range n.Sessions {
		if s.Failed > 0 {
			on("not_renewed", Warn, "does not renew its leases", fmt.Sprintf("Session %s failed %s in a row: %s trusted for %.1f s more. %s", s.ID,
				plural(s.Failed, "time", "times"), plural(s.Leases, "lease is", "leases are"), s.Trusted/1000, sentence(s.Error)))
		}
	}
	if n.Store != nil && n.Store.Slow {
		on("store_slow", Warn, "has a slow store", fmt.Sprintf("Renewals took %.0f ms at the 99th percentile of the last minute, and may take %.0f ms.", n.Store.P99, n.Store.Attempt))
	}
	if c := n.Clock; c != nil && b.store.Margin > 0 && max(c.Offset, -c.Offset)-c.Error > millis(b.store.Margin)/2 {
		on("clock", Warn, "has a clock that is off", fmt.Sprintf("By %.0f ms, give or take %.1f ms.", c.Offset, c.Error))
	}
	var letters int64
	for _, count := range n.DeadLetters {
		letters += count
	}
	if letters > lettersAfter {
		on("dead_letters", Warn, fmt.Sprintf("has %d dead letters", letters), "")
	}
	if n.Health != nil && !n.Health.OK {
		on("unhealthy", Warn, "is not healthy", strings.Join(n.Health.Errors, "; "))
	}
	if n.State == "leaving" || n.State == "draining" {
		on(n.State, Info, "is "+n.State, "")
	}
}

// ofLosses counts the leases that were lost within the hour.
func (b *builder) ofLosses(add func(Problem)) {
	p := Problem{Code: "lost", Severity: Warn, Subject: "store"}
	for _, e := range b.events {
		if e.Kind == journal.Lost && !e.observed {
			p.Count++
			p.Since, p.Node = e.At, e.node
			p.Detail = fmt.Sprintf("The last: %s on %s. %s", e.Name, e.node, sentence(e.Reason))
		}
	}
	if p.Count > 0 {
		p.Text = plural(p.Count, "lease was", "leases were") + " lost in the last hour"
		add(p)
	}
}

// ofVersions tells when nodes run more than one version.
func (b *builder) ofVersions(add func(Problem)) {
	of := map[string][]string{}
	for _, n := range b.out.Nodes {
		if n.Version != "" {
			of[n.Version] = append(of[n.Version], n.ID)
		}
	}
	if len(of) < 2 {
		return
	}
	var all []string
	for v, ids := range of {
		all = append(all, v+": "+strings.Join(ids, ", "))
	}
	slices.Sort(all)
	add(Problem{Code: "versions", Severity: Info, Subject: "store", Text: "nodes run more than one version", Detail: strings.Join(all, "; ")})
}
