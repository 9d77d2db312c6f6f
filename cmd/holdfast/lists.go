package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
)

type snapshot = *console.Snapshot

// things are all of a kind.
func things(s snapshot, of string) []any {
	singletons, leases := boxed(s.Singletons, nil), boxed(s.Leases, nil)
	return map[string][]any{
		"leases": leases, "all leases": boxed(allLeases(s), nil), "nodes": boxed(s.Nodes, nil),
		"singletons": singletons, "types": boxed(s.Types, nil), "names": append(singletons, leases...),
	}[of]
}

// allLeases are the leases by name, and behind them those of shards and partitions by number, which are
// in the tables of their types.
func allLeases(s snapshot) []console.Lease {
	all := slices.Clone(s.Leases)
	for _, t := range s.Types {
		for _, x := range t.Table {
			kind, segments := "shard", []string{t.Group, t.Type, strconv.Itoa(x.Shard)}
			if t.Kind == "partition" {
				kind, segments = t.Kind, []string{t.Group, t.Type, "own", x.Key}
			}
			name, _ := lease.Name(kind, segments...) // it came from a name, or no name is known
			l := console.Lease{Name: name, Kind: kind, State: "free", Token: x.Token, Since: x.Since}
			if x.Owner != "" {
				l.State, l.Owner = "held", &console.Owner{ID: x.Owner}
			}
			all = append(all, l)
		}
	}
	return all
}

// names are those of all of a kind.
func names(s snapshot, of string) (all []string) {
	for _, x := range things(s, of) {
		all = append(all, text(s, plain(x), kinds[of].name))
	}
	return all
}

// command makes a command. How many arguments it takes is what use says; the first is the name of a
// thing of a kind, or begins one.
func (a *app) command(use, short, example, of string, run func(ctx context.Context, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Example: "  " + example, ValidArgsFunction: a.completion(of)}
	takes := strings.Fields(use)[1:]
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > len(takes) || len(args) < len(takes) && takes[len(args)][0] != '[' {
			return usage("want \"holdfast %s\", not %d arguments, as in: %s", use, len(args), example)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error { return run(c.Context(), args) }
	return c
}

// completion completes names of a kind, within a second.
func (a *app) completion(of string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) (all []string, _ cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(c.Context(), time.Second)
		defer stop()
		if of != "" && a.settle() == nil {
			_ = a.with(ctx, func(from source) error {
				s, err := from.Snapshot(ctx, time.Now().Add(-reach))
				all = slices.DeleteFunc(names(&s, of), func(name string) bool { return !strings.HasPrefix(name, typed) })
				return err
			})
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func unknown(name string) error {
	return fmt.Errorf("there is no %q; a lease goes by its whole name: holdfast ls, singletons and shards list those there are", name)
}

var passing = regexp.MustCompile(`"\w+_ms":[^,}]*`)

// list makes a command that prints what pick picks: []any, or one thing. Without pick that is all of a
// kind, or the one that is named.
func (a *app) list(use, short, example, of string, pick func(s snapshot, args []string) (kind string, x any, err error)) *cobra.Command {
	since, follow := reach, false
	var last []byte
	if pick == nil {
		pick = func(s snapshot, args []string) (string, any, error) {
			all := things(s, of)
			if len(args) == 0 {
				return of, all, nil
			}
			i := slices.Index(names(s, of), args[0])
			if i < 0 {
				return "", nil, unknown(args[0])
			}
			return of, all[i], nil
		}
	}
	c := a.command(use, short, example, of, func(ctx context.Context, args []string) error {
		show := func(s snapshot) error {
			kind, x, err := pick(s, args)
			if err != nil {
				return err
			}
			if follow { // what only passes is no change
				now, err := json.Marshal(x)
				if now = passing.ReplaceAll(now, nil); err != nil || bytes.Equal(now, last) {
					return err
				}
				last = now
			}
			return a.print(s, kind, x)
		}
		if follow {
			return a.changes(ctx, show)
		}
		s, err := a.snapshot(ctx, since)
		if err != nil {
			return err
		}
		return show(&s)
	})
	c.Flags().DurationVar(&since, "since", reach, "how far back events and history reach")
	c.Flags().BoolVarP(&follow, "watch", "w", false, "print again after each change")
	return c
}

// changes calls f with what stands and again each second, until ctx is done or f fails.
func (a *app) changes(ctx context.Context, f func(snapshot) error) error {
	return a.with(ctx, func(from source) error {
		for {
			s, err := from.Snapshot(ctx, time.Now().Add(-reach))
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				err = f(&s)
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

// boxed are those of all that keep keeps.
func boxed[T any](all []T, keep func(T) bool) []any {
	some := []any{}
	for _, x := range all {
		if keep == nil || keep(x) {
			some = append(some, x)
		}
	}
	return some
}

func first(args []string) string { return append(args, "")[0] }

func id(o *console.Owner) string { return cmp.Or(o, &console.Owner{}).ID }

// lists are the commands that print lists.
func (a *app) lists() []*cobra.Command {
	var ofKind, holder, state string
	var withShards, warn bool
	ls := a.list("ls [PREFIX]", "List leases: who holds what, and for how long", "holdfast ls cron/ --holder shop-2",
		"leases", func(s snapshot, args []string) (string, any, error) {
			all := s.Leases
			if withShards {
				all = allLeases(s)
			}
			return "leases", boxed(all, func(l console.Lease) bool {
				return strings.HasPrefix(l.Name, first(args)) && cmp.Or(ofKind, l.Kind) == l.Kind &&
					cmp.Or(holder, id(l.Owner)) == id(l.Owner) && cmp.Or(state, l.State) == l.State
			}), nil
		})
	ls.Flags().StringVar(&ofKind, "kind", "", "only of this kind, such as singleton or application")
	ls.Flags().StringVar(&holder, "holder", "", "only those this node holds, by its id")
	ls.Flags().StringVar(&state, "state", "", "only held, or free")
	_ = ls.RegisterFlagCompletionFunc("holder", a.completion("nodes"))
	ls.Flags().BoolVar(&withShards, "shards", false, "those of shards and partitions, too")

	get := a.list("get NAME", "Print one lease", "holdfast get cron/nightly-report -o json", "all leases", nil)
	members := a.list("members", "List the nodes of all groups", "holdfast members -o wide", "nodes", nil)
	members.Aliases = []string{"nodes"}
	single := a.list("singletons [NAME]", "List singletons: their hosts, phases and waiting messages",
		"holdfast singletons report-mailer -o yaml", "singletons", nil)
	shards := a.list("shards [GROUP/TYPE]", "List sharded types and partitions, or those of one", "holdfast shards shop/account",
		"types", func(s snapshot, args []string) (string, any, error) {
			if len(args) == 0 {
				return "types", boxed(s.Types, nil), nil
			}
			var all []console.Shard // a type of entities and partitions may have one name
			for _, t := range s.Types {
				if t.Group+"/"+t.Type == args[0] {
					all = append(all, t.Table...)
				}
			}
			if all == nil {
				return "", nil, fmt.Errorf("no sharded type and no partitions %q: holdfast shards lists those there are", args[0])
			}
			return "shards", boxed(all, nil), nil
		})

	events := a.list("events [PREFIX]", "List what happened, by the nodes' journals",
		"holdfast events singleton/report-mailer --since 30m",
		"leases", func(s snapshot, args []string) (string, any, error) {
			return "events", boxed(s.Events, func(e console.Event) bool { return strings.HasPrefix(e.Name, first(args)) }), nil
		})

	ill := false
	health := a.list("health", "List problems, the worst first; exit 1 if one is bad", "holdfast health --warn",
		"", func(s snapshot, _ []string) (string, any, error) {
			ill = slices.ContainsFunc(s.Problems, func(p console.Problem) bool {
				return p.Severity == console.Bad || warn && p.Severity == console.Warn
			})
			return "problems", boxed(s.Problems, nil), nil
		})
	health.Flags().BoolVar(&warn, "warn", false, "exit 1 at warnings, too")
	health.PostRunE = func(*cobra.Command, []string) error {
		if ill {
			return &coded{codeError, nil}
		}
		return nil
	}
	return []*cobra.Command{ls, get, members, single, shards, events, health, a.watchCommand(), a.describeCommand(), a.doctorCommand()}
}

// watchCommand prints events as they come.
func (a *app) watchCommand() *cobra.Command {
	return a.command("watch [PREFIX]", "Print events as they come, until interrupted", "holdfast watch singleton/ -o jsonl",
		"leases", func(ctx context.Context, args []string) error {
			switch {
			case a.output == "json" || a.output == "yaml":
				return usage("watch has no end, so no -o %s: use jsonl", a.output)
			case a.node == "" && a.store != "":
				return usage("watch needs what nodes tell: give --node, or see a store alone by ls -w")
			}
			var seen map[string]bool
			return a.changes(ctx, func(s snapshot) error {
				now, began := map[string]bool{}, seen != nil
				fresh := boxed(s.Events, func(e console.Event) bool {
					now[e.ID] = true
					return began && !seen[e.ID] && strings.HasPrefix(e.Name, first(args))
				})
				seen = now
				if a.output == "table" || a.output == "wide" {
					return a.table(s, kinds["events"].columns, fresh, false)
				}
				return a.print(s, "events", fresh)
			})
		})
}

// subject is all that a snapshot has of one name.
type subject struct {
	Lease     *console.Lease     `json:"lease,omitempty"`
	Singleton *console.Singleton `json:"singleton,omitempty"`
	Problems  []console.Problem  `json:"problems"`
	Events    []console.Event    `json:"events"` // the newest last
}

// lookUp finds a lease, or a singleton by its own name or its lease's.
func lookUp(s snapshot, name string) (x subject, lease string) {
	lease = name
	for _, y := range s.Singletons {
		if y.Name == name || y.Lease == name {
			x.Singleton, lease = &y, y.Lease
		}
	}
	for _, l := range allLeases(s) {
		if l.Name == lease {
			x.Lease = &l
		}
	}
	x.Problems = slices.DeleteFunc(slices.Clone(s.Problems), func(p console.Problem) bool { return p.Subject != lease })
	x.Events = slices.DeleteFunc(slices.Clone(s.Events), func(e console.Event) bool { return e.Name != lease })
	return x, lease
}

func (x subject) known() bool { return x.Lease != nil || x.Singleton != nil }

// working reports whether a node holds the name, and works.
func (x subject) working() bool {
	if x.Singleton != nil {
		return slices.Contains([]string{"active", "held"}, x.Singleton.Phase)
	}
	return x.Lease != nil && x.Lease.Owner != nil
}

// described are the lines and the tables of a page about a subject.
var described = []struct{ title, of, columns string }{
	{"", "lease", "Name name, Kind kind, State state, Holder owner.id, Address owner.address, Token token, " +
		"Granted granted, Since since, Held for ~since, Free since free_since, Last token last_token, TTL ttl_ms, " +
		"Left left_ms, Session session, Waiting waiting, Metadata metadata"},
	{"Singleton", "singleton", "Name name, Phase phase, Host host.id, Child since since, No host since hostless_since, " +
		"Last host last_host, Told to stop stopping_since, Reason reason, Messages waiting waiting"},
	{"Problems", "problems", "severity, text, ~since, detail"},
	{"Candidates", "singleton.candidates", "id, phase, why_not"},
	{"Hand-overs, and how long none ran", "singleton.handovers", "at, from, to, kind, gap_ms, reason"},
	{"Held by", "lease.history", "token, holder, from, to, ended, reason"},
	{"Events", "events", "at, node, kind, peer, took_ms, reason"},
}

func (a *app) describeCommand() *cobra.Command {
	return a.list("describe NAME", "Say all that is known of a lease or a singleton", "holdfast describe report-mailer --since 30m",
		"names", func(s snapshot, args []string) (string, any, error) {
			x, _ := lookUp(s, args[0])
			if !x.known() {
				return "", nil, unknown(args[0])
			}
			return "subject", x, nil
		})
}

// describe prints the page about a subject.
func (a *printer) describe(s snapshot, x any) error {
	for _, part := range described {
		of := dig(plain(x), strings.Split(part.of, "."))
		items, _ := of.([]any)
		items = items[max(0, len(items)-20):]
		if thing, is := of.(map[string]any); is {
			for column := range strings.SplitSeq(part.columns, ", ") {
				space := strings.LastIndexByte(column, ' ')
				if t := text(s, thing, column[space+1:]); t != "" {
					items = append(items, map[string]any{"head": column[:space] + ":", "text": t})
				}
			}
			part.columns = "head, text"
		}
		if len(items) == 0 {
			continue
		}
		if part.title != "" {
			fmt.Fprintf(a.out, "\n%s\n", part.title)
		}
		if err := a.table(s, part.columns, items, false); err != nil {
			return err
		}
	}
	return nil
}

// cause is why no node hosts a name, perhaps, and what to do about it.
type cause struct {
	Cause string `json:"cause"`
	Do    string `json:"do"`
}

func (a *app) doctorCommand() *cobra.Command {
	c := a.command("doctor NAME", "Say why no node hosts a name, the likeliest cause first", "holdfast doctor report-mailer",
		"names", func(ctx context.Context, args []string) error {
			s, err := a.snapshot(ctx, reach)
			if err != nil {
				return err
			}
			verdict, all := diagnose(&s, args[0])
			if a.output != "table" && a.output != "wide" {
				return a.print(&s, "causes", boxed(all, nil))
			}
			_, err = fmt.Fprintln(a.out, safe(verdict))
			for i, c := range all {
				fmt.Fprintf(a.out, "\n%d. %s\n   Do: %s\n", i+1, safe(c.Cause), safe(c.Do))
			}
			return err
		})
	c.Long = c.Short + `.
It reads the record, the members, what the nodes say of the name, the problems, and what happened in the
last hour. With --store it has the records alone: ask a node (--node) for more.`
	return c
}

const (
	doStore = "bring the store back, or its network: holdfast check --store URL measures it"
	doStop  = "see what its work waits for; to end that process frees the name within a TTL"
)

// does is what to do about a problem, by its code.
var does = map[string]string{
	"hostless":     "mend what is said here or below; after failures of its child restart that node, or call Manager.Resume",
	"failing":      "mend what its Own says; another node tries it after five times in a row",
	"not_stopping": doStop, "not_renewed": doStore, "store_slow": doStore,
	"lost":  doStore + "; docs/choosing-a-ttl.md says how long a TTL must be",
	"twice": "see the logs of both nodes, and the fence of what they write to, at once",
}

// diagnose says how it is with a name, and why that may be, the likeliest first.
func diagnose(s snapshot, name string) (verdict string, all []cause) {
	say := func(do, format string, args ...any) {
		all = append(all, cause{fmt.Sprintf(format, args...), do})
	}
	x, lease := lookUp(s, name)
	if why := s.Cluster.StoreFailure; why != "" {
		say(doStore, "The store does not answer, so that no lease can be acquired: %s", why)
	}
	for _, p := range x.Problems {
		since := ""
		if !p.Since.IsZero() {
			since = " since " + clock(p.Since)
		}
		say(cmp.Or(does[p.Code], "holdfast describe has its events"), "It %s%s. %s", p.Text, since, p.Detail)
	}
	working := x.working()
	switch {
	case !x.known():
		verdict = "is not known"
		do := "start a node or a program that uses the name, or correct it: holdfast ls lists all"
		last := name[strings.LastIndexByte(name, '/')+1:]
		alike := slices.DeleteFunc(names(s, "names"), func(other string) bool { return !strings.Contains(other, last) })
		if len(alike) > 0 {
			do = "did you mean " + strings.Join(alike[:min(3, len(alike))], ", ") + "?"
		}
		say(do, "No record has the name, and no node that was asked offers it: it is misspelt, or not started.")
	case working && x.Lease != nil:
		verdict = "is held by " + id(x.Lease.Owner)
	case working:
		verdict = "has a host, " + id(x.Singleton.Host)
	default:
		verdict = "has no host that works"
		x.causes(s, say)
	}
	for _, m := range s.Missing {
		say("see whether its process runs, and its address is reached; if it has died, its leases are free within their TTL", "%s does not answer (%s): what it knows is not here.", m.Node, m.Error)
	}
	told := map[string]bool{"": true}
	for _, e := range slices.Backward(x.Events) {
		if !working && !told[e.Reason] && len(told) < 4 {
			told[e.Reason] = true
			say("see the log of "+e.Node+" at that time", "Before: %s on %s at %s: %s", e.Kind, e.Node, clock(e.At), e.Reason)
		}
	}
	return fmt.Sprintf("%s %s.", lease, verdict), all
}

// causes says why no node works under a name that is known.
func (x subject) causes(s snapshot, say func(do, format string, args ...any)) {
	may := map[string]bool{} // nodes that would host it
	if y := x.Singleton; y != nil {
		why := map[string][]string{}
		said := func(p console.Problem) bool { return p.Detail == y.Reason }
		for _, k := range y.Candidates {
			if may[k.ID] = k.Eligible; !k.Eligible {
				why[k.Why] = append(why[k.Why], k.ID)
			}
		}
		switch {
		case y.Reason != "" && y.Host == nil && !slices.ContainsFunc(x.Problems, said):
			say(does["hostless"], "%s says: %s", cmp.Or(y.LastHost, "A node"), y.Reason)
		case y.Host != nil && !y.Stopping.IsZero():
			say(doStop, "%s was told to stop at %s and still runs, so its lease stays with it.", y.Host.ID, clock(y.Stopping))
		case len(y.Candidates) == 0 && s.Node != "":
			say("start one whose program has the singleton", "No node that answered has this singleton.")
		}
		for _, reason := range slices.Sorted(maps.Keys(why)) {
			say("start a node that may, or change that: its roles, or options such as WithProxyOnly", "%s may not host it: %s", strings.Join(why[reason], ", "), cmp.Or(reason, "it does not say why"))
		}
	}
	up := 0
	for _, n := range s.Nodes {
		switch {
		case n.State == "up":
			up++
		case may[n.ID] && n.State != "gone":
			say("holdfast undrain "+n.ID+", or wait until it has left", "%s is %s, and takes nothing on.", n.ID, n.State)
		}
	}
	if up == 0 {
		say("start a node, and see the logs of those that should run", "No node is up.")
	}
	switch l := x.Lease; {
	case l != nil && l.Owner != nil && x.Singleton != nil && x.Singleton.Host == nil:
		say("wait: if "+l.Owner.ID+" has died, the lease is free when that ends", "The record is still held by %s, for %s.",
			l.Owner.ID, show(s, l.Left, "left_ms"))
	case l != nil && len(l.Waiting) > 0:
		say("wait a moment; then see their logs, and holdfast check --store URL", "It is free, and %s would hold it: "+
			"they are about to acquire it, or the store refuses them.", strings.Join(l.Waiting, ", "))
	case l != nil && l.Owner == nil && x.Singleton == nil:
		say("start the program that asks for it, and see its log", "It is free, and no node asks for it.")
	}
}
