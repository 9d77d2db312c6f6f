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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/console"
)

type snapshot = *console.Snapshot

// things are all of a kind.
func things(s snapshot, of string) []any {
	switch of {
	case "leases":
		return boxed(s.Leases, nil)
	case "all leases":
		return boxed(allLeases(s), nil)
	case "nodes":
		return boxed(s.Nodes, nil)
	case "singletons":
		return boxed(s.Singletons, nil)
	case "types":
		return boxed(s.Types, nil)
	case "names":
		return append(things(s, "singletons"), things(s, "leases")...)
	}
	return nil
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
				s, err := from.Snapshot(ctx, reach)
				all = slices.DeleteFunc(names(&s, of), func(name string) bool { return !strings.HasPrefix(name, typed) })
				return err
			})
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func unknown(name string) error {
	return fmt.Errorf("there is no %q: holdfast ls and holdfast singletons list those there are", name)
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

// changes calls f with what stands and after each change, until ctx is done or f fails.
func (a *app) changes(ctx context.Context, f func(snapshot) error) error {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := a.with(within, func(from source) error {
		return from.Changes(within, func(s console.Snapshot) {
			if within.Err() != nil {
				return
			}
			if err := f(&s); err != nil {
				stop(err)
			}
		})
	})
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(context.Cause(within), err)
}

// boxed are those of all that keep keeps.
func boxed[T any](all []T, keep func(T) bool) (some []any) {
	for _, x := range all {
		if keep == nil || keep(x) {
			some = append(some, x)
		}
	}
	return append([]any{}, some...)
}

func first(args []string) string { return append(args, "")[0] }

func id(o *console.Owner) string {
	if o == nil {
		return ""
	}
	return o.ID
}

func typeName(t console.Type) string { return t.Group + "/" + t.Type }

// allLeases are those of shards, too, which a snapshot has in the tables of their types.
func allLeases(s snapshot) []console.Lease {
	all := slices.Clone(s.Leases)
	for _, t := range s.Types {
		for _, x := range t.Table {
			l := console.Lease{Kind: "shard", State: "free", Token: x.Token, Since: x.Since}
			l.Name = fmt.Sprintf("shard/%s/%d", typeName(t), x.Shard)
			if x.Owner != "" {
				l.State, l.Owner = "held", &console.Owner{ID: x.Owner}
			}
			all = append(all, l)
		}
	}
	return all
}

// lists are the commands that print lists.
func (a *app) lists() []*cobra.Command {
	var ofKind, holder, state string
	var withShards, moves, asMap, warn bool
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
	ls.Flags().BoolVar(&withShards, "shards", false, "those of shards, too")

	get := a.list("get NAME", "Print one lease", "holdfast get cron/nightly-report -o json", "all leases", nil)
	members := a.list("members", "List the nodes of all groups", "holdfast members -o wide", "nodes", nil)
	members.Aliases = []string{"nodes"}
	single := a.list("singletons [NAME]", "List singletons: their hosts, phases and waiting messages",
		"holdfast singletons report-mailer -o yaml", "singletons", nil)
	shards := a.list("shards [GROUP/TYPE]", "List sharded types, or the shards of one", "holdfast shards shop/account --map",
		"types", func(s snapshot, args []string) (string, any, error) {
			i := slices.IndexFunc(s.Types, func(t console.Type) bool { return typeName(t) == first(args) })
			switch {
			case moves:
				return "moves", movesOf(s, first(args)), nil
			case len(args) == 0 && asMap:
				return "", nil, usage("--map needs a type: holdfast shards GROUP/TYPE --map")
			case len(args) == 0:
				return "types", boxed(s.Types, nil), nil
			case i < 0:
				return "", nil, fmt.Errorf("no sharded type %q: holdfast shards lists those there are", args[0])
			case asMap:
				return "map", shardMap(s.Types[i]), nil
			}
			return "shards", boxed(s.Types[i].Table, nil), nil
		})
	shards.Flags().BoolVar(&moves, "moves", false, "the moves that are under way")
	shards.Flags().BoolVar(&asMap, "map", false, "a map of the owners, one letter a shard")

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

// movesOf are the moves under way of a type, or of all.
func movesOf(s snapshot, name string) []any {
	all := []any{}
	for _, t := range s.Types {
		for _, m := range t.Moves {
			if cmp.Or(name, typeName(t)) == typeName(t) {
				all = append(all, struct {
					Type string `json:"type"`
					console.Move
				}{typeName(t), m})
			}
		}
	}
	return all
}

// watchCommand prints events as they come.
func (a *app) watchCommand() *cobra.Command {
	return a.command("watch [PREFIX]", "Print events as they come, until interrupted", "holdfast watch singleton/ -o jsonl",
		"leases", func(ctx context.Context, args []string) error {
			if a.output == "json" || a.output == "yaml" {
				return usage("watch has no end, so no -o %s: use jsonl", a.output)
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

// shardMap has one letter a shard, and says what the letters mean.
func shardMap(t console.Type) (rows []any) {
	const letters, perRow = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 64
	type row struct {
		From string `json:"from"` // number of the first shard, or a letter
		Map  string `json:"map"`
	}
	counts := map[string]int{}
	for _, x := range t.Table {
		counts[x.Owner]++
	}
	owners := slices.Sorted(maps.Keys(counts))
	letter := func(owner string) string {
		if owner == "" {
			return "."
		}
		i := slices.Index(owners, owner) - min(1, counts[""])
		return letters[i%len(letters):][:1]
	}
	for chunk := range slices.Chunk(t.Table, perRow) {
		line := ""
		for _, x := range chunk {
			line += letter(x.Owner)
		}
		rows = append(rows, row{fmt.Sprint(chunk[0].Shard), line})
	}
	for _, owner := range owners {
		rows = append(rows, row{letter(owner), fmt.Sprintf("%s: %d", cmp.Or(owner, "no node"), counts[owner])})
	}
	return rows
}
