package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
)

var noon = time.Date(2026, 3, 12, 12, 0, 0, 0, time.UTC)

// told makes events of lines such as "1500 a acquired singleton/x 7", at milliseconds after noon; a
// sixth word is the peer.
func told(lines string) (events []happened) {
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		f := strings.Split(strings.TrimSpace(line), " ")
		var at int
		var token uint64
		_, _ = fmt.Sscan(f[0], &at)
		_, _ = fmt.Sscan(f[4], &token)
		e := happened{node: f[1], boot: "incarnation-" + f[1]}
		e.Number, e.At, e.Kind, e.Name, e.Token = uint64(i+1), noon.Add(time.Duration(at)*time.Millisecond), strings.ReplaceAll(f[2], "_", " "), f[3], token
		if len(f) > 5 {
			e.Peer = f[5]
		}
		e.observed = e.Kind == journal.Seen || e.Kind == journal.SeenFree
		events = append(events, e)
	}
	return events
}

func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func TestLanes(t *testing.T) {
	const x = "singleton/x"
	none := map[string]time.Time(nil)
	for name, c := range map[string]struct {
		events string
		heard  map[string]time.Time
		spans  []Span
		gaps   []float64 // of the hand-overs, newest first; -1: not known
		kinds  string
	}{
		"a planned hand-over": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			500 a child_ended singleton/x 1
			502 a handed_over singleton/x 2 b
			502 c seen singleton/x 2 b
			503 b acquired singleton/x 3
			504 b became_host singleton/x 3
			505 c seen singleton/x 3 b`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(502), RunFrom: at(1), RunTo: at(500), Ended: "handed over"},
				{Holder: "b", Token: 3, From: at(502), RunFrom: at(504)}},
			gaps: []float64{4}, kinds: "planned"},
		"a planned hand-over that another node saw first": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			500 a child_ended singleton/x 1
			501 c seen_free singleton/x 1 a
			502 a handed_over singleton/x 2 b
			503 b acquired singleton/x 3
			504 b became_host singleton/x 3`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(502), RunFrom: at(1), RunTo: at(500), Ended: "handed over"},
				{Holder: "b", Token: 3, From: at(503), RunFrom: at(504)}},
			gaps: []float64{4}, kinds: "planned"},
		"a host that dies while others follow it": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			9000 b seen_free singleton/x 1 a
			9001 c seen_free singleton/x 1 a
			9002 b acquired singleton/x 5
			9003 b became_host singleton/x 5`, heard: map[string]time.Time{"incarnation-a": at(700), "its next": at(9900)},
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(9000), RunFrom: at(1), RunTo: at(700), Ended: "gone"},
				{Holder: "b", Token: 5, From: at(9002), RunFrom: at(9003)}},
			gaps: []float64{8303}, kinds: "unplanned"},
		"a host that died before it was asked": {events: `
			0 b seen singleton/x 1 a
			9000 b seen_free singleton/x 1 a
			9002 b acquired singleton/x 5
			9003 b became_host singleton/x 5`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(9000), RunFrom: at(0), RunTo: at(9000), Ended: "gone"},
				{Holder: "b", Token: 5, From: at(9002), RunFrom: at(9003)}},
			gaps: []float64{3}, kinds: "unplanned"},
		"a host whose end is noticed late": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			9002 b acquired singleton/x 5
			9003 b became_host singleton/x 5
			9900 b seen_free singleton/x 1 a`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(9002), RunFrom: at(1), RunTo: at(9002), Ended: "gone"},
				{Holder: "b", Token: 5, From: at(9002), RunFrom: at(9003)}},
			gaps: []float64{1}, kinds: "unplanned"},
		"a child that is started again": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			10 a child_ended singleton/x 1
			40 a became_host singleton/x 1`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(10), RunFrom: at(1), RunTo: at(10), Ended: "restarted"},
				{Holder: "a", Token: 1, From: at(10), RunFrom: at(40)}}},
		"a loss that the child outlives": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			100 a lost singleton/x 1
			160 a child_ended singleton/x 1
			170 a released singleton/x 1
			180 a acquired singleton/x 4`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(170), RunFrom: at(1), RunTo: at(160), Ended: "lost"},
				{Holder: "a", Token: 4, From: at(180)}},
			gaps: []float64{-1}, kinds: "unplanned"},
		"clocks that differ turn the order round": {events: `
			0 a acquired singleton/x 1
			1 a became_host singleton/x 1
			99 b acquired singleton/x 2
			100 b became_host singleton/x 2
			101 a child_ended singleton/x 1
			102 a handed_over singleton/x 1 b`,
			spans: []Span{
				{Holder: "a", Token: 1, From: at(0), To: at(102), RunFrom: at(1), RunTo: at(101), Ended: "handed over"},
				{Holder: "b", Token: 2, From: at(99), RunFrom: at(100)}},
			gaps: []float64{0}, kinds: "planned"},
	} {
		t.Run(name, func(t *testing.T) {
			heard := c.heard
			if heard == nil {
				heard = none
			}
			l := lanesOf(told(c.events), heard)[x]
			require.Equal(t, c.spans, l.inOrder())
			var gaps []float64
			var kinds []string
			for _, h := range l.handovers() {
				gap := -1.0
				if h.Gap != nil {
					gap = *h.Gap
				}
				gaps, kinds = append(gaps, gap), append(kinds, h.Kind)
			}
			require.Equal(t, c.kinds, strings.Join(kinds, " "))
			require.Equal(t, c.gaps, gaps)
		})
	}
}

// inOrder is the spans in their order.
func (l *lane) inOrder() (all []Span) {
	for _, s := range l.all {
		all = append(all, *s)
	}
	return all
}

// cluster is what a viewer sees of nodes a and b, with these events.
func cluster(events string, records ...lease.Record) seen {
	in := seen{at: at(60_000), self: "a", from: at(-3_600_000), store: lease.Info{TTL: 10 * time.Second, Margin: time.Second}, answers: map[string]answer{}, records: records}
	for _, id := range []string{"a", "b"} {
		in.answers["incarnation-"+id] = answer{owner: lease.Owner{ID: id, Incarnation: "incarnation-" + id, Address: id + ":1"}, took: 4 * time.Millisecond,
			report: &inquiry.Report{At: in.at, Incarnation: "incarnation-" + id}}
	}
	if events != "" {
		in.events = told(events)
	}
	return in
}

// held is a record of node a or b.
func held(name, id string, token lease.Token) lease.Record {
	return lease.Record{Name: name, Token: token, Owner: lease.Owner{ID: id, Incarnation: "incarnation-" + id, Address: id + ":1"}, TTL: 10 * time.Second,
		Left: 7 * time.Second, Granted: at(0), Metadata: map[string]string{"shards": "4", "hosts": "1"}}
}

// codes are the codes of a Snapshot's problems, and how bad they are.
func codes(s Snapshot) (all []string) {
	for _, p := range s.Problems {
		all = append(all, p.Severity+" "+p.Code+" "+p.Subject)
	}
	return all
}

func TestProblems(t *testing.T) {
	overlap := func(by int) string {
		return fmt.Sprintf("0 a acquired job/x 1\n1 a began job/x 1\n500 b acquired job/x 2\n501 b began job/x 2\n%d a ended job/x 1", 501+by)
	}
	for name, c := range map[string]struct {
		events  string
		records []lease.Record
		change  func(*seen)
		want    []string
	}{
		"nothing":                             {},
		"an overlap within the clocks' error": {events: overlap(2)},
		"an overlap beyond it":                {events: overlap(30), want: []string{"bad twice job/x"}},
		"one within the error at which their journals were read": {events: overlap(30), change: func(in *seen) {
			in.events[3].doubt, in.events[4].doubt = 20*time.Millisecond, 11*time.Millisecond
		}},
		"a singleton that no node holds": {events: "0 a acquired singleton/x 1\n1 a became_host singleton/x 1\n100 a child_ended singleton/x 1\n101 a released singleton/x 1",
			change: func(in *seen) {
				in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "x", Lease: "singleton/x", Phase: "standby", WhyNot: "the role is missing"}}
			}, want: []string{"bad hostless singleton/x"}},
		"one that was just lost": {events: "59000 a acquired singleton/x 1\n59001 a became_host singleton/x 1\n59100 a child_ended singleton/x 1\n59101 a lost singleton/x 1",
			change: func(in *seen) {
				in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "x", Lease: "singleton/x", Phase: "acquiring"}}
			}, want: []string{"warn hostless singleton/x", "warn lost store"}},
		"a child that does not stop": {records: []lease.Record{held("singleton/x", "a", 1)}, change: func(in *seen) {
			in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "x", Lease: "singleton/x", Phase: "stopping", Hosts: true, Stopping: at(0)}}
		}, want: []string{"bad not_stopping singleton/x"}},
		"a child that is being stopped": {records: []lease.Record{held("singleton/x", "a", 1)}, change: func(in *seen) {
			in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "x", Lease: "singleton/x", Phase: "handing over", Hosts: true, Stopping: at(59_000), Trouble: "for 1s its child was told to stop and has not"}}
		}},
		"a child that can't be made": {records: []lease.Record{held("singleton/x", "a", 1)}, change: func(in *seen) {
			in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "x", Lease: "singleton/x", Phase: "starting", Hosts: true, Trouble: "its Props hang", Unwell: true}}
		}, want: []string{"bad unwell singleton/x"}},
		"shards that no node holds": {records: []lease.Record{held("region/g/t/a/incarnation-a", "a", 1), held("shard/g/t/0", "a", 2), held("shard/g/t/3", "a", 3)},
			want: []string{"warn unassigned shard/g/t"}},
		"for longer than the TTL": {events: "0 a hosted shard/g/t/1 5\n10 a released shard/g/t/1 5",
			records: []lease.Record{held("region/g/t/a/incarnation-a", "a", 1), held("shard/g/t/0", "a", 2), held("shard/g/t/3", "a", 3), held("shard/g/t/2", "a", 3)},
			want:    []string{"bad unassigned shard/g/t"}},
		"nodes that differ on the number of shards": {events: "0 a count_mismatch coordinator/g/t 0", records: []lease.Record{held("coordinator/g/t", "a", 1)},
			want: []string{"bad count_mismatch shard/g/t", "warn unassigned shard/g/t"}},
		"a node that is silent": {records: []lease.Record{held("member/g/b/incarnation-b", "b", 1)}, change: func(in *seen) {
			in.answers["incarnation-b"] = answer{owner: in.answers["incarnation-b"].owner, err: fmt.Errorf("no answer")}
		}, want: []string{"warn no_answer node/b"}},
		"a slow store, failed renewals, a clock that is off": {change: func(in *seen) {
			r := in.answers["incarnation-b"]
			r.offset = 800 * time.Millisecond
			r.report.P99, r.report.Attempt = 900*time.Millisecond, 2*time.Second
			r.report.Sessions = []inquiry.Session{{ID: "1", Leases: 3, Failed: 2, Error: "timeout"}}
			in.answers["incarnation-b"] = r
		}, want: []string{"warn clock node/b", "warn not_renewed node/b", "warn store_slow node/b"}},
		"a store that is away": {change: func(in *seen) { in.failure = "connection refused" }, want: []string{"bad store store"}},
		"a node that leaves": {records: []lease.Record{held("member/g/b/incarnation-b", "b", 1), held("leaving/g/b/incarnation-b", "b", 2)},
			want: []string{"info leaving node/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := cluster(c.events, c.records...)
			if c.change != nil {
				c.change(&in)
			}
			s := build(in)
			require.Equal(t, c.want, codes(s))
			for _, p := range s.Problems {
				require.NotEmpty(t, p.Text)
				require.NotContains(t, p.Detail, "%!")
			}
		})
	}
}

// Shards of one cause are one event, and one lane for a type: how many had no host.
func TestShardsAreFolded(t *testing.T) {
	var lines []string
	for i := range 4 {
		lines = append(lines, fmt.Sprintf("%d a hosted shard/g/t/%d %d", i, i, i+1))
	}
	lines = append(lines, "1000 a seen member/g/b/incarnation-b 9 b", "1000 a handed_off shard/g/t/0 1 b", "1003 b hosted shard/g/t/0 20", "9000 a seen_free member/g/b/incarnation-b 9 b", "9100 a hosted shard/g/t/0 30")
	events := told(strings.Join(lines, "\n"))
	all := folded(events)
	require.Equal(t, 4, all[0].Count)
	require.Equal(t, "shard/g/t", all[0].Name)
	require.Len(t, all, 6)
	require.Equal(t, []Unhosted{{at(1000), 1}, {at(1003), 0}, {at(9000), 1}, {at(9100), 0}}, unhosted(events, "shard/g/t/"))
}

// A node is up again, and hosts, before all have noticed the end of its earlier life.
func TestShardsOfANodeThatIsBackAtOnce(t *testing.T) {
	events := told("0 a hosted shard/g/t/0 1\n500 a hosted shard/g/t/0 5\n900 b seen_free member/g/a/incarnation-a 2 a\n910 c seen_free member/g/a/incarnation-a 2 a")
	events[1].boot = "incarnation-a2"
	steps := unhosted(events, "shard/g/t/")
	require.Empty(t, steps)
}

// What Config.Text hides is in no part of the answer.
func TestTextIsHidden(t *testing.T) {
	r := held("job/x", "a", 1)
	r.Metadata = map[string]string{"k": "secret"}
	in := cluster("0 a acquired job/x 1\n10 a lost job/x 1", r)
	in.events[1].Reason = "secret"
	in.answers["incarnation-a"].report.Singletons = []inquiry.Singleton{{Name: "y", Lease: "singleton/y", Phase: "standby", WhyNot: "secret", Trouble: "secret"}}
	in.answers["incarnation-a"].report.Unhealthy = []string{"secret"}
	in.answers["incarnation-a"].report.Sessions = []inquiry.Session{{ID: "1", Failed: 1, Error: "secret"}}
	in.answers["incarnation-a"].report.Unreached = map[string]string{"c:1": "secret"}
	in.answers["incarnation-b"] = answer{owner: in.answers["incarnation-b"].owner, err: fmt.Errorf("secret")}
	m := held("member/g/a/incarnation-a", "a", 2)
	m.Metadata = map[string]string{"labels": `{"k":"secret"}`, "roles": `["secret"]`}
	in.records = append(in.records, m, held("region/g/t/a/incarnation-a", "a", 1))
	moved := told("20 a handed_off shard/g/t/0 1 b")[0]
	moved.Reason = "secret"
	in.events = append(in.events, moved)
	in.failure = "secret"
	in.cfg.Text = func(s string) string { return strings.ReplaceAll(s, "secret", "…") }
	for _, e := range in.events {
		told := in.answers["incarnation-a"].report
		told.Events = append(told.Events, e.Event)
	}
	(&Console{cfg: in.cfg, lives: map[string]*life{}}).take(&in)
	body, err := json.Marshal(build(in))
	require.NoError(t, err)
	require.NotContains(t, string(body), "secret")
	require.Equal(t, "secret", r.Metadata["k"], "records are not changed")
	require.Equal(t, "secret", in.answers["incarnation-a"].report.Unreached["c:1"])
}

// The last answer of a node that is gone says when its work ended only if the console asked it again
// soon after.
func TestWhenANodeFellSilent(t *testing.T) {
	c := &Console{lives: map[string]*life{}}
	look := func(ms int, answers bool) map[string]time.Time {
		in := cluster("")
		in.at = at(ms)
		if !answers {
			in.answers["incarnation-b"] = answer{owner: in.answers["incarnation-b"].owner, err: fmt.Errorf("no answer")}
		}
		c.take(&in)
		return in.heard
	}
	require.Empty(t, look(0, true))
	require.Equal(t, map[string]time.Time{"incarnation-b": at(0)}, look(1000, false))
	require.Equal(t, map[string]time.Time{"incarnation-b": at(0)}, look(20_000, false))
	require.Empty(t, look(30_000, true))
	require.Empty(t, look(2_400_000, false), "no one looked for long")
	require.Len(t, c.lives, 2)
	in := seen{at: at(8_000_000)}
	c.take(&in)
	require.Empty(t, c.lives)
}

// That nothing ran twice can't be said of work whose end no node told.
func TestATimelineWithoutAnEndIsNotComplete(t *testing.T) {
	in := cluster("0 b acquired job/x 1\n1 b began job/x 1\n500 b ended job/x 1\n501 b released job/x 1")
	require.True(t, build(in).Timeline.Complete)
	in = cluster("0 b acquired singleton/x 1\n1 b became_host singleton/x 1\n9000 a seen_free singleton/x 1 b")
	require.False(t, build(in).Timeline.Complete)
	in.from = at(10_000)
	require.True(t, build(in).Timeline.Complete)
}

// Of more events than are kept the oldest go, and it is said that some are missing.
func TestMoreEventsThanAreKept(t *testing.T) {
	c := &Console{lives: map[string]*life{}}
	in := cluster("")
	r := in.answers["incarnation-b"].report
	for i := range mostEvents + 1 {
		r.Events = append(r.Events, inquiry.Event{Event: journal.Event{Number: uint64(i + 1), At: at(i), Kind: "entity crashed", Name: "shard/g/t/1"}})
	}
	c.take(&in)
	require.Len(t, in.events, mostEvents)
	require.EqualValues(t, 2, in.events[0].Number)
	require.True(t, in.missing)
	in = cluster("")
	in.at = at(3_700_000)
	c.take(&in)
	require.False(t, in.missing)
}

// What was seen stays as it is: a Snapshot may be made of it meanwhile.
func TestWhatWasSeenDoesNotChange(t *testing.T) {
	c := &Console{lives: map[string]*life{}}
	for n := range 50 {
		in := cluster("")
		in.answers["incarnation-b"].report.Events = []inquiry.Event{{Event: journal.Event{Number: uint64(n + 1), At: at(1000 - n), Kind: journal.Acquired, Name: "singleton/x", Token: 1}}}
		before := c.events
		was := slices.Clone(before)
		c.take(&in)
		require.Equal(t, was, before)
		require.Equal(t, at(1000-n), in.events[0].At)
	}
}

// A node is up again while the record of its earlier life stands: an action is for the life that answers.
func TestANodeWithTwoLives(t *testing.T) {
	dead := Node{Owner: Owner{ID: "b", Incarnation: "1", Address: "b:1"}, State: "up", Source: "records"}
	lives := Node{Owner: Owner{ID: "b", Incarnation: "2", Address: "b:1"}, State: "up", Source: "asked"}
	for _, nodes := range [][]Node{{dead, lives}, {lives, dead}} {
		to, _, err := target(Snapshot{Nodes: nodes}, Request{Action: "drain", Node: "b"})
		require.NoError(t, err)
		require.Equal(t, "2", to.Incarnation)
	}
}

// A node without Listen can be asked by its own page alone.
func TestANodeWithoutAnAddress(t *testing.T) {
	s := Snapshot{Node: "a", Nodes: []Node{{Owner: Owner{ID: "a"}}, {Owner: Owner{ID: "b"}}}}
	_, _, err := target(s, Request{Action: "drain", Node: "a"})
	require.NoError(t, err)
	_, _, err = target(s, Request{Action: "drain", Node: "b"})
	require.ErrorContains(t, err, `"b" has no address to ask it at`)
}
