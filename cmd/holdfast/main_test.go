package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/console"
)

var update = flag.Bool("update", false, "write the golden files")

// said is what the command left.
type said struct {
	code     int
	out, log string
}

// noLeaks sees at the test's end that it left no goroutine, but protoactor's log of dead letters, which
// ends a second later.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	later := goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1")
	t.Cleanup(func() { goleak.VerifyNone(t, before, later) })
}

// holdfast runs the command with what it inherits from env.
func holdfast(t *testing.T, env map[string]string, args ...string) said {
	t.Helper()
	for _, key := range []string{"HOLDFAST_STORE", "HOLDFAST_NODE", "NO_COLOR"} {
		t.Setenv(key, env[key])
	}
	var out, log bytes.Buffer
	code := run(t.Context(), args, strings.NewReader("y\n"), &out, &log)
	return said{code, out.String(), log.String()}
}

// node serves the API of a node whose snapshot is testdata/snapshot.json, and keeps what was asked.
type node struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []console.Request
	answer http.HandlerFunc   // to actions; nil: accepted
	next   []console.Snapshot // that are served in turn, and then none; empty: always the same
}

func serveNode(t *testing.T) *node {
	file, err := os.ReadFile("testdata/snapshot.json")
	require.NoError(t, err)
	noLeaks(t)
	n := &node{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /x/api/v1/snapshot", func(w http.ResponseWriter, r *http.Request) {
		if _, err := time.ParseDuration(r.FormValue("since")); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch len(n.next) {
		case 0:
			_, _ = w.Write(file)
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		default:
			_ = json.NewEncoder(w).Encode(n.next[0])
			n.next = n.next[1:]
		}
	})
	mux.HandleFunc("POST /x/api/v1/actions", func(w http.ResponseWriter, r *http.Request) {
		var q console.Request
		if r.Header.Get("Holdfast-Action") != "1" || r.Header.Get("Content-Type") != "application/json" ||
			json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		n.mu.Lock()
		n.asked = append(n.asked, q)
		answer := n.answer
		n.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"text":"begun\u001b[31m"}`))
	})
	n.Server = httptest.NewServer(mux)
	t.Cleanup(n.Close)
	return n
}

// answers sets how actions are answered from now on.
func (n *node) answers(h http.HandlerFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = h
}

// took returns what was asked since it was called last.
func (n *node) took() []console.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.asked = nil }()
	return n.asked
}

func (n *node) env() map[string]string { return map[string]string{"HOLDFAST_NODE": n.URL + "/x"} }

// TestOutputs: what each command prints of the fixture, in each form, is in the golden files.
func TestOutputs(t *testing.T) {
	n := serveNode(t)
	for _, lines := range []string{
		"ls; ls -o wide; ls -o json; ls -o jsonl; ls -o yaml; ls -o name; ls singleton/ --state free; " +
			"ls --kind application --holder shop-2; ls nothing/; ls nothing/ -o json; ls --shards --holder shop-4 -o name",
		"get cron/nightly-report; get zz/\u009b31mevil -o json; get zz/\u009b31mevil -o yaml; get shard/shop/account/3; get nothing",
		"describe report-mailer; describe singleton/fx-rates; describe cron/nightly-report; " +
			"describe fx-rates -o json; describe fx-rates -o yaml; describe nothing; describe partition/shop/tenants/own/acme%2Feu",
		"members; nodes -o wide; members -o json; members -o jsonl; members -o yaml; members -o name",
		"singletons; singletons -o wide; singletons -o json; singletons -o jsonl; singletons -o yaml; singletons -o name; " +
			"singletons fx-rates; singletons fx-rates -o json; singletons nothing",
		"shards; shards -o wide; shards -o json; shards -o jsonl; shards -o yaml; shards -o name; shards shop/account; " +
			"shards shop/account -o json; shards nothing/x; shards shop/tenants; shards shop/tenants -o wide; " +
			"ls --shards --kind partition -o wide",
		"events; events -o wide; events -o json; events -o jsonl; events -o yaml; events -o name; events outbox/",
		"health; health -o wide; health -o json; health -o jsonl; health -o yaml; health -o name",
		"doctor fx-rates; doctor report-mailer; doctor scheduler; doctor reports; doctor cron/nightly-report; " +
			"doctor fx-rates -o json; doctor fx-rates -o yaml; doctor partition/shop/tenants/own/free<b>; " +
			"doctor partition/shop/tenants/own/evil%1B[31m; doctor partition/shop/tenants/own/acme%2Feu",
	} {
		name, _, _ := strings.Cut(lines, ";")
		name = strings.Fields(name)[0]
		t.Run(name, func(t *testing.T) {
			var all strings.Builder
			for line := range strings.SplitSeq(lines, "; ") {
				got := holdfast(t, n.env(), strings.Fields(line)...)
				got.log = strings.ReplaceAll(got.log, n.URL, "http://node")
				fmt.Fprintf(&all, "$ holdfast %s\n%s%s= %d\n\n", escaped(line), got.out, quoted(got.log), got.code)
			}
			golden(t, name, all.String())
		})
	}
}

// quoted marks lines on stderr.
func quoted(log string) (all string) {
	for line := range strings.Lines(log) {
		all += "! " + line
	}
	return all
}

func golden(t *testing.T, name, got string) {
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f\u202a-\u202e]", strings.ReplaceAll(got, "zz/\u009b31mevil\n", ""))
}

// TestWrongUse: what is used wrongly exits with 2, or 1 where it may become right, and says on one
// line what to do.
func TestWrongUse(t *testing.T) {
	n := serveNode(t)
	mail := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(mail.Close)
	for line, want := range map[string]said{
		"lst":                                 {2, "", "did you mean ls or"},
		"frobnicate":                          {2, "", "holdfast --help lists all"},
		"ls --nope":                           {2, "", "holdfast ls --help"},
		"ls --since 1parsec":                  {2, "", "holdfast ls --help"},
		"ls -o xml":                           {2, "", "table, wide, json, jsonl, yaml, name"},
		"ls a b":                              {2, "", `want "holdfast ls [PREFIX]"`},
		"get":                                 {2, "", `want "holdfast get NAME", not 0 arguments`},
		"ls":                                  {2, "", "HOLDFAST_STORE, such as etcd://localhost:2379"},
		"check":                               {2, "", "sqlite:leases.db"},
		"check --node " + n.URL:               {2, "", "no store"},
		"ls --node x":                         {2, "", "http://localhost:8080/admin/holdfast/"},
		"ls --node ftp://x":                   {2, "", "http://localhost:8080/admin/holdfast/"},
		"ls --node " + n.URL:                  {1, "", "is a Holdfast page mounted there?"},
		"ls --node http://u:pw@127.0.0.1:1/":  {1, "", "http://u:***@127.0.0.1:1/"},
		"ls --store x --node y":               {2, "", "give one of them"},
		"ls --store nope:x":                   {2, "", `scheme "nope" is not known`},
		"ls --store etcd:/x":                  {2, "", "want etcd://user:password@host:port"},
		"ls --store sqlite:/no/such":          {1, "", `no file "/no/such"`},
		"drain a --store memory:":             {2, "", "drain asks a node: give --node"},
		"transfer a --to b --store memory:":   {2, "", "transfer asks a node: give --node"},
		"watch --store memory:":               {2, "", "by ls -w"},
		"watch -o json --store memory:":       {2, "", "use jsonl"},
		"check -n 0 --store memory:":          {2, "", "from 1 to 1000000"},
		"bench --parallel 0 --store memory:":  {2, "", "from 1 to 1000"},
		"bench --read-only --store memory:":   {2, "", "use check"},
		"tune --stall -1s --store memory:":    {2, "", "Stall is -1s"},
		"ui --listen nowhere --store memory:": {2, "", "--listen"},
		"migrate --apply --read-only --store memory:": {2, "", "leave --read-only out"},
	} {
		t.Run(line, func(t *testing.T) {
			got := holdfast(t, nil, strings.Fields(line)...)
			require.Equal(t, want.code, got.code, got.log)
			require.Empty(t, got.out)
			require.Contains(t, got.log, want.log)
			require.Regexp(t, `\Aholdfast: .*\n\z`, got.log)
		})
	}
}

// TestSteering: what is asked of a node, and what each answer exits with.
func TestSteering(t *testing.T) {
	n := serveNode(t)
	for line, want := range map[string]console.Request{
		"drain shop-2":   {Action: "drain", Node: "shop-2"},
		"undrain shop-4": {Action: "undrain", Node: "shop-4"},
		"transfer singleton/scheduler --to shop-1": {Action: "move", Name: "scheduler", To: "shop-1", Token: 204366},
		"transfer scheduler --to shop-3":           {Action: "move", Name: "scheduler", To: "shop-3", Token: 204366},
		"release outbox/orders":                    {Action: "release", Name: "outbox/orders", Token: 208757},
	} {
		args := strings.Fields(line)
		got := holdfast(t, n.env(), args...)
		require.Equal(t, codeUsage, got.code)
		require.Contains(t, got.log, "say --yes, as there is no terminal")
		got = holdfast(t, n.env(), append(args, "--yes", "--read-only")...)
		require.Equal(t, codeUsage, got.code)
		require.Contains(t, got.log, "leave --read-only out")
		require.Empty(t, n.took())
		got = holdfast(t, n.env(), append(args, "--yes")...)
		require.Equal(t, said{codeOK, "begun\\u001b[31m\n", got.log}, got)
		require.Equal(t, []console.Request{want}, n.took())
	}
	got := holdfast(t, n.env(), "drain", "a", "-y", "-o", "json")
	require.JSONEq(t, `{"text":"begun\u001b[31m"}`, got.out)
	got = holdfast(t, n.env(), "release", "nothing", "-y")
	require.Equal(t, codeError, got.code)
	require.Contains(t, got.log, `there is no "nothing"`)

	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"code":%q,"text":"because\nof \u001b[2J"}}`, code)
		}
	}
	for _, c := range []struct {
		answer http.HandlerFunc
		code   int
		says   string
	}{
		{refuse(409, "conflict"), codeHeld, `: conflict: because\nof \u001b[2J`},
		{refuse(403, "forbidden"), codeError, "forbidden"},
		{refuse(404, "unknown"), codeError, "unknown"},
		{refuse(400, "invalid"), codeUsage, "invalid"},
		{refuse(503, "unavailable"), codeUnknown, "unavailable"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, codeUnknown, "may or may not have been begun"},
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, codeError, "500"},
	} {
		n.answers(c.answer)
		got := holdfast(t, n.env(), "drain", "shop-2", "-y")
		require.Equal(t, c.code, got.code, got.log)
		require.Contains(t, got.log, c.says)
		require.Contains(t, got.log, n.URL)
	}
	got = holdfast(t, map[string]string{"HOLDFAST_NODE": "http://127.0.0.1:1"}, "drain", "a", "-y")
	require.Equal(t, codeError, got.code, "nothing was sent")
}

// TestChanges: watch prints new events, once each, and -w what has changed.
func TestChanges(t *testing.T) {
	n := serveNode(t)
	file, err := os.ReadFile("testdata/snapshot.json")
	require.NoError(t, err)
	var s console.Snapshot
	require.NoError(t, json.Unmarshal(file, &s))
	event := func(id, name string) console.Event {
		return console.Event{ID: id, At: s.At, Node: "shop-1", Kind: "lost", Name: name, Reason: "x\x1b[1m"}
	}
	one, two := s, s
	one.Events = append(slices.Clone(s.Events), event("a", "cron/a"))
	two.Events = append(slices.Clone(one.Events), event("b", "cron/b"))
	n.next = []console.Snapshot{s, one, two, {}}
	got := holdfast(t, n.env(), "watch", "-o", "name")
	require.Equal(t, "a\nb\n", got.out)
	require.Equal(t, codeError, got.code)
	require.Contains(t, got.log, "502")
	n.next = []console.Snapshot{s, two, {}}
	got = holdfast(t, n.env(), "watch", "cron/b")
	require.Equal(t, "2026-03-12 14:30:00.000  shop-1  lost  cron/b        x\\u001b[1m\n", got.out)
	one.Leases, two.Leases = s.Leases[:1], slices.Clone(s.Leases[:1])
	two.Leases[0].Left = 1
	n.next = []console.Snapshot{s, one, two, {}}
	got = holdfast(t, n.env(), "ls", "-w", "-o", "jsonl")
	require.Equal(t, len(s.Leases)+1, strings.Count(got.out, "\n"), "what passes is no change")
}

// TestCompletion: names come from the node, within a second.
func TestCompletion(t *testing.T) {
	n := serveNode(t)
	for line, want := range map[string]string{
		"get cr":                    "cron/nightly-report\n:4\n",
		"transfer sch":              "scheduler\n:4\n",
		"transfer scheduler --to ":  "shop-1\nshop-3\nshop-4\n:4\n",
		"drain shop-3":              "shop-3\n:4\n",
		"shards sh":                 "shop/account\nshop/tenants\n:4\n",
		"doctor singleton/led":      "singleton/ledger-sweeper\n:4\n",
		"ls -o j":                   "table\nwide\njson\njsonl\nyaml\nname\n:4\n",
		"doctor singleton/led more": ":4\n",
	} {
		args := strings.Split(line, " ")
		got := holdfast(t, n.env(), append([]string{cobra.ShellCompRequestCmd}, args...)...)
		require.Equal(t, want, got.out, line)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	start := time.Now()
	got := holdfast(t, map[string]string{"HOLDFAST_NODE": "http://" + silent.Addr().String()}, cobra.ShellCompRequestCmd, "get", "")
	require.Equal(t, ":4\n", got.out)
	require.Less(t, time.Since(start), answerTime)
	require.Contains(t, holdfast(t, nil, "completion", "bash").out, "__start_holdfast")
}

// TestPipes: a reader that has read enough ends the command quietly.
func TestPipes(t *testing.T) {
	n := serveNode(t)
	t.Setenv("HOLDFAST_NODE", n.URL+"/x")
	for _, line := range []string{"ls", "ls -o json", "ls -o jsonl", "ls -o yaml", "ls -o name", "describe fx-rates",
		"doctor fx-rates", "events -w", "version", "shards shop/account"} {
		in, out, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, in.Close())
		var log bytes.Buffer
		require.Equal(t, codeOK, run(t.Context(), strings.Fields(line), nil, out, &log), "%s: %s", line, &log)
		require.NotContains(t, log.String(), "broken pipe")
		require.NoError(t, out.Close())
	}
}

// TestEveryCommandIsDocumented: each has help and an example, and docs/command.md has all names.
func TestEveryCommandIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	root := (&app{}).root()
	for _, c := range root.Commands() {
		if c.Name() == "run" {
			continue // its own test has it
		}
		require.NotEmpty(t, c.Short, c.Name())
		require.NotEmpty(t, c.Example, c.Name())
		require.Contains(t, string(page), "holdfast "+c.Name())
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains("since watch samples help yes", f.Name) {
				require.Contains(t, string(page), "--"+f.Name, c.Name())
			}
		})
	}
	for _, m := range regexp.MustCompile("`holdfast ([a-z]+)|holdfast (completion)").FindAllStringSubmatch(string(page), -1) {
		c, _, err := root.Find([]string{m[1] + m[2]})
		require.True(t, err == nil && (c != root || m[1]+m[2] == "completion"), "holdfast %s", m[1]+m[2])
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]*").FindAllString(string(page), -1) {
		require.True(t, flag == "--lease" || slices.ContainsFunc(append(root.Commands(), root), func(c *cobra.Command) bool {
			return c.Flags().Lookup(flag[2:]) != nil || c.PersistentFlags().Lookup(flag[2:]) != nil
		}), flag)
	}
}

// TestUI: the page of a store alone is served to this machine, to read.
func TestUI(t *testing.T) {
	_, _, env := keepLeases(t)
	ctx, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var out bytes.Buffer
	a := &app{printer: printer{out: &out}, store: env["HOLDFAST_STORE"]}
	done := make(chan error, 1)
	go func() {
		done <- a.alone(ctx, func(c *console.Console) error { return a.serve(ctx, l, c) })
	}()
	at := "http://" + l.Addr().String() + "/"
	status := func(method, path, host string) int {
		q, err := http.NewRequest(method, at+path, nil)
		require.NoError(t, err)
		q.Host = host
		r, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		return r.StatusCode
	}
	require.Equal(t, 200, status("GET", "api/v1/snapshot?since=1h", ""))
	require.Equal(t, 200, status("GET", "", "localhost:1"))
	require.Equal(t, 421, status("GET", "", "evil.example"))
	require.Equal(t, 403, status("POST", "api/v1/actions", ""))
	http.DefaultClient.CloseIdleConnections()
	stop()
	require.NoError(t, <-done)
	require.Equal(t, at+"\n", out.String())
}
