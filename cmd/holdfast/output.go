package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/console"
)

// formats are those of --output. Tables may change; the others have the version of the console's JSON.
var formats = []string{"table", "wide", "json", "jsonl", "yaml", "name"}

// kind is how things of one kind are printed: by members of their JSON. A path goes down by dots; '|'
// is or, '/' joins two, '~' is how long before the snapshot a time was. Columns behind the semicolon
// are for -o wide.
type kind struct{ name, columns string }

const leaseColumns = "NAME name, STATE state, HOLDER owner.id, FOR ~since|~free_since, TOKEN token; " +
	"KIND kind, TTL ttl_ms, LEFT left_ms, WAITING waiting, SESSION session"

var kinds = map[string]kind{
	"names":      {"name", ""},
	"leases":     {"name", leaseColumns},
	"all leases": {"name", leaseColumns},
	"nodes": {"id", "NODE id, STATE state, LEADER leader, ADDRESS address, ROLES roles, FOR ~joined, " +
		"LEASES sessions.leases, STORE P99 store.p99_ms; GROUP group, VERSION version, ANSWERED answered_ms, SOURCE source"},
	"singletons": {"name", "NAME name, PHASE phase, HOST host.id, FOR ~hostless_since|~since, " +
		"MESSAGES waiting, REASON reason; TOKEN token, CANDIDATES candidates.id, LEASE lease"},
	"types": {"group/type", "TYPE group/type, KIND kind, SHARDS shards, HOSTED hosted, UNASSIGNED unassigned, MOVING moving, " +
		"ENTITIES entities, MESSAGES waiting, COORDINATOR coordinator.id; TOKEN token"},
	"shards": {"key|shard", "SHARD key|shard, OWNER owner, PHASE phase, TO to, ENTITIES entities, MESSAGES waiting, " +
		"FOR ~since, FAILURES failures; TOKEN token, ERROR error"},
	"events": {"id", "AT at, NODE node, KIND kind, NAME name, PEER peer, TOOK took_ms, COUNT count, REASON reason; " +
		"TOKEN token, SOURCE source"},
	"problems": {"subject", "SEVERITY severity, SUBJECT subject, PROBLEM text, FOR ~since, DETAIL detail; CODE code"},
	"checks":   {"check", "CHECK check, SEVERITY severity, RESULT text"},
	"causes":   {"cause", "CAUSE cause, DO do"},
	"advice": {"ttl_ms", "TTL ttl_ms, RENEWAL renewal_ms, MARGIN margin_ms, OUTAGE outage_ms, " +
		"LONGEST longest_ms, LOST/HOUR false_losses_per_hour"},
	"times": {"what", "WHAT what, N n, P50 p50_ms, P90 p90_ms, P99 p99_ms, MAX max_ms"},
}

// printer prints things in the form that was asked for.
type printer struct {
	out, log io.Writer
	output   string // --output
}

// print prints a list of a kind, or one thing of it.
func (a *printer) print(s snapshot, of string, things any) error {
	items, list := things.([]any)
	if !list {
		items = []any{things}
	}
	switch {
	case a.output == "json" || a.output == "yaml":
		if list {
			things = struct {
				API   string `json:"api"`
				Kind  string `json:"kind"`
				Items []any  `json:"items"`
			}{console.Version, of, items}
		}
		return a.object(things)
	case a.output == "jsonl" || a.output == "name":
		for _, x := range items {
			if err := a.line(s, of, x); err != nil {
				return err
			}
		}
		return nil
	case of == "subject":
		return a.describe(s, things)
	case len(items) == 0:
		fmt.Fprintf(a.log, "holdfast: no %s\n", of)
		return nil
	}
	return a.table(s, kinds[of].columns, items, true)
}

// line prints one thing as jsonl, or its name.
func (a *printer) line(s snapshot, of string, x any) error {
	if a.output == "jsonl" {
		return a.object(x)
	}
	name := text(s, plain(x), kinds[of].name)
	if isTerminal(a.out) {
		name = safe(name)
	}
	_, err := fmt.Fprintln(a.out, name)
	return err
}

// table prints columns of items.
func (a *printer) table(s snapshot, columns string, items []any, head bool) error {
	columns, more, _ := strings.Cut(columns, "; ")
	if a.output == "wide" && more != "" {
		columns += ", " + more
	}
	rows, plains := make([][]string, len(items)+1), make([]any, len(items))
	for i, x := range items {
		plains[i] = plain(x)
	}
	for column := range strings.SplitSeq(columns, ", ") {
		space := strings.LastIndexByte(column, ' ')
		rows[0] = append(rows[0], column[:max(0, space)])
		for i, x := range plains {
			rows[i+1] = append(rows[i+1], text(s, x, column[space+1:]))
		}
	}
	if !head {
		rows = rows[1:]
	}
	return a.rows(rows)
}

// rows prints cells as columns.
func (a *printer) rows(rows [][]string) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprint(w, safe(cell), "\t")
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // b takes all
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if isTerminal(a.out) && os.Getenv("NO_COLOR") == "" {
			line = coloured.ReplaceAllStringFunc(line, func(cell string) string {
				return colours[strings.TrimSpace(cell)] + cell + "\x1b[0m"
			})
		}
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

// coloured are cells that have a colour.
var coloured = regexp.MustCompile("(^|  )(bad|hostless|gone|lost|warn|free|draining|leaving)(  |$)")

var colours = map[string]string{
	console.Bad: "\x1b[31m", "hostless": "\x1b[31m", "gone": "\x1b[31m", "lost": "\x1b[31m",
	console.Warn: "\x1b[33m", "free": "\x1b[33m", "draining": "\x1b[33m", "leaving": "\x1b[33m",
}

// object prints x as JSON, on one line for jsonl, or as YAML.
func (a *printer) object(x any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if a.output != "jsonl" {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(x); err != nil {
		return err
	}
	text := escaped(b.String())
	if a.output == "yaml" {
		all, err := yaml.JSONToYAML([]byte(text))
		if err != nil {
			return err
		}
		text = escaped(string(all))
	}
	_, err := io.WriteString(a.out, text)
	return err
}

// plain is x as its JSON says it.
func plain(x any) (y any) {
	if b, err := json.Marshal(x); err == nil {
		_ = json.Unmarshal(b, &y)
	}
	return y
}

// text is what a path leads to, for people.
func text(s snapshot, x any, path string) string {
	for one := range strings.SplitSeq(path, "|") {
		var joined []string
		for part := range strings.SplitSeq(one, "/") {
			keys := strings.Split(strings.TrimPrefix(part, "~"), ".")
			joined = append(joined, show(s, dig(x, keys), part))
		}
		if t := strings.Join(joined, "/"); t != "" {
			return t
		}
	}
	return ""
}

func dig(x any, keys []string) any {
	switch y := x.(type) {
	case []any:
		var all []any
		for _, z := range y {
			all = append(all, dig(z, keys))
		}
		return all
	case map[string]any:
		if len(keys) > 0 {
			return dig(y[keys[0]], keys[1:])
		}
	}
	return x
}

// show shows a value; of many, numbers are added up.
func show(s snapshot, x any, path string) string {
	switch x := x.(type) {
	case bool:
		return map[bool]string{true: "yes"}[x]
	case float64:
		if strings.HasSuffix(path, "_ms") {
			return span(time.Duration(x * float64(time.Millisecond)))
		}
		return strconv.FormatFloat(x, 'g', 6, 64)
	case string:
		if t, err := time.Parse(time.RFC3339, x); err != nil {
			return x
		} else if path[0] == '~' {
			return span(max(0, s.At.Sub(t)))
		} else {
			return clock(t)
		}
	case map[string]any:
		var all []any
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if n, ok := x[k].(float64); ok {
				all = append(all, n)
			} else {
				all = append(all, fmt.Sprintf("%s=%v", k, x[k]))
			}
		}
		return show(s, all, path)
	case []any:
		var texts []string
		sum := 0.
		for _, y := range x {
			if n, ok := y.(float64); ok {
				sum += n
			} else {
				texts = append(texts, show(s, y, path))
			}
		}
		if len(texts) == 0 && len(x) > 0 {
			return show(s, sum, path)
		}
		return strings.Join(texts, ", ")
	}
	return ""
}

// escaped writes what a terminal may take for a command as JSON does, but for ends of lines.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// safe is s on one line, with nothing that a terminal may take for a command.
func safe(s string) string { return escaped(strings.ReplaceAll(s, "\n", `\n`)) }

func isTerminal(x any) bool {
	f, ok := x.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// span is a duration for people, to two units.
func span(d time.Duration) string {
	names := []string{"d", "h", "min", "s"}
	units := []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second}
	for i, unit := range units[:3] {
		if d < unit {
			continue
		}
		whole, rest := fmt.Sprintf("%d %s", d/unit, names[i]), d%unit/units[i+1]
		if rest > 0 {
			whole += fmt.Sprintf(" %d %s", rest, names[i+1])
		}
		return whole
	}
	if d >= time.Second {
		return strings.Replace(fmt.Sprintf("%.1f s", d.Seconds()), ".0", "", 1)
	}
	return strconv.FormatFloat(millis(d), 'g', 3, 64) + " ms"
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// clock is a time for people, in UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }
