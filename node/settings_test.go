package node_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
)

const maxSettingsBytes = 1 << 18

func parse(t *testing.T, text string) *node.Settings {
	t.Helper()
	s := must(node.ParseSettings("s.yaml", []byte(text)))(t)
	return s
}

func TestSettingsThatAreTaken(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "---\n", "{}", "null", "lease_ttl: 10s", "lease_ttl_s: 10", "lease_ttl_s: 0.5", "lease_ttl_s: 0.3000000001", "lease_ttl_s: 010", "lease_ttl:", "singletons: {cron: {<<: {lease_ttl: 5s}}}",
		"lease_ttl: 10s\nheartbeat: 3s\n", "lease_ttl_s: 10\nheartbeat_s: 2.5", "renewal: lazy", "renewal: 0.4", "renewal: '0.4'",
		"singletons:\n", "singletons:\n  cron:\n", "singletons: {cron: {lease_ttl: 8760h}}", "singletons: {cron: {lease_ttl_s: 31536000}}",
		"leases: {a/b: {renewal: never}, a/: {renewal: activity}, 'c d': {renewal: manual}}",
		"sharded: {account: {lease_ttl: 1m30s, heartbeat: 500ms}}", "group: {lease_ttl: 5s, renewal: adaptive}",
		"singletons: {a: &slow {lease_ttl: 30s}, b: *slow}", "singletons: {7: {lease_ttl: 5s}, true: {}, a/b: {}}",
		strings.Repeat("#", maxSettingsBytes),
	} {
		_, err := node.ParseSettings("s.yaml", []byte(text))
		require.NoError(t, err, text[:min(len(text), 80)])
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	longKey := strings.Repeat("x", 513)
	for text, says := range map[string][]string{
		"lease_tll: 10s": {`s.yaml:1: invalid: field lease_tll is unknown in the file's settings`},
		"singletons:\n  cron:\n    lease_ttl: 10s\n    heartbeats: 3s\n": {`s.yaml:4: invalid: field heartbeats is unknown in the file's entry`},
		"singletons: {cron: {group: {}}}":                                {`field group is unknown`},
		"lease_ttl: 10s\n\nlease_ttl: 20s":                               {"s.yaml:3: ", "lease_ttl"},
		"singletons: {a: {}, b: {}, a: {}}":                              {`"a"`},
		"singletons: {a: {}, 'a': {}}":                                   {`"a"`},
		"singletons: {7: {}, '7': {}}":                                   {`s.yaml:1: invalid: mapping key "7" already defined at line 1`},
		"lease_ttl: 10s\nlease_ttl_s: 10":                                {"s.yaml:1: invalid: lease_ttl and lease_ttl_s, must be one of them"},
		"lease_ttl: 10s\nheartbeat_s: 3\nrenewal: 0.5":                   {"s.yaml:1: invalid: heartbeat and renewal, must be one of them"},
		"lease_ttl: 10":                                                  {"s.yaml:1: invalid: cannot construct !!int `10` into time.Duration"},
		"lease_ttl: ten":                                                 {"`ten` into time.Duration"},
		"lease_ttl: 10 s":                                                {"`10 s` into time.Duration"},
		"lease_ttl: [10s]":                                               {"cannot construct !!seq into time.Duration"},
		"lease_ttl: {a: b}":                                              {"cannot construct !!map into time.Duration"},
		"lease_ttl: !!binary MTBz":                                       {"cannot construct !!binary"},
		"lease_ttl: 299ms":                                               {"s.yaml:1: invalid: a TTL of 299ms, must be at least 300ms"},
		"lease_ttl: 8761h":                                               {"s.yaml:1: invalid: lease_ttl: 8761h0m0s, must be at least 1ms and at most 8760h0m0s"},
		"lease_ttl: -10s":                                                {"-10s, must be at least 1ms"},
		"lease_ttl: 0s":                                                  {"0s, must be at least 1ms"},
		"lease_ttl: 9999999999999h":                                      {"into time.Duration"},
		"lease_ttl_s: 10s":                                               {`s.yaml:1: invalid: "10s", must be a number of seconds such as 30 or 0.5`},
		"lease_ttl_s: '10'":                                              {`"10", must be a number of seconds`},
		"lease_ttl_s: -1":                                                {"lease_ttl: -1s, must be at least 1ms"},
		"lease_ttl_s: 0":                                                 {"lease_ttl: 0s, must be at least 1ms"},
		"lease_ttl_s: .nan":                                              {`".nan", must be a number of seconds`},
		"lease_ttl_s: .inf":                                              {`".inf", must be a number of seconds`},
		"lease_ttl_s: 99999999999999999999":                              {`"99999999999999999999", must be a number of seconds`},
		"lease_ttl_s: 31536001":                                          {"at most 8760h0m0s"},
		"lease_ttl_s: true":                                              {`"true", must be a number of seconds`},
		"lease_ttl: 10s\nheartbeat: 10s":                                 {"a heartbeat of 10s, must be below the TTL of 10s"},
		"lease_ttl: 10s\nsingletons:\n  cron:\n    heartbeat_s: 3\n": {`s.yaml:3: singletons "cron": invalid: a heartbeat of 3s without a TTL, needs lease_ttl or lease_ttl_s beside it`},
		"heartbeat: 3s":                              {"s.yaml:1: invalid: a heartbeat of 3s without a TTL"},
		"renewal: lazzy":                             {`s.yaml:1: invalid: "lazzy", must be one of default, eager, lazy`},
		"renewal: 1.5":                               {"s.yaml:1: invalid: 1.5, must be above 0 and below 1"},
		"renewal: .nan":                              {`".nan", must be one of`},
		"renewal: nan":                               {"must be above 0"},
		"renewal: -0.1":                              {"must be above 0"},
		"renewal: true":                              {`"true", must be one of`},
		"renewal: never":                             {"renewal never, must be a policy that renews for as long as the lease is held"},
		"group: {renewal: activity}":                 {"group: invalid: renewal activity"},
		"singletons: {cron: {renewal: manual}}":      {`singletons "cron": invalid: renewal manual`},
		"sharded: {account: {renewal: never}}":       {`sharded "account": invalid: renewal never`},
		"singletons: [cron]":                         {"cannot construct !!seq into map[string]*node.entry"},
		"singletons: cron":                           {"cannot construct !!str `cron` into map[string]*node.entry"},
		"singletons: {'': {}}":                       {`singletons "": invalid: empty`},
		"leases: {a//b: {}}":                         {"has an empty segment"},
		"leases: {/: {}}":                            {"empty"},
		"leases:\n  ? " + longKey + "\n  : {}":       {"513 bytes, at most 512"},
		"leases: {[a]: {}}":                          {"cannot construct !!seq into string"},
		"singletons:\n  : {lease_ttl: 5s}":           {"s.yaml:2: invalid: a key without a name"},
		"group: {~: 5s}":                             {"a key without a name"},
		"leases:\n  a: {}\n  b//c:\n  //:\n":         {`s.yaml:3: leases "b//c": invalid: has an empty segment`, `s.yaml:4: leases "//"`},
		"lease_ttl_s: 0x10":                          {`"0x10", must be a number of seconds`},
		"- a":                                        {"s.yaml:1: invalid: cannot construct !!seq into node.settings"},
		"a: b: c":                                    {"s.yaml:1: invalid: mapping values are not allowed"},
		"lease_ttl: 10s\n\tgroup: {}":                {"s.yaml:2: invalid: "},
		"lease_ttl: 10s\n---\nlease_ttl: 20s\n":      {"2 documents, must be one"},
		"a: *b":                                      {"s.yaml:1: invalid: unknown anchor"},
		"lease_ttl: \"\xff\"":                        {"s.yaml: invalid: "},
		strings.Repeat("[", 100000):                  {"s.yaml:1: invalid: exceeded max depth"},
		strings.Repeat("#", maxSettingsBytes) + "\n": {"more than 262144 bytes"},
		"a: 1\nb: 2\nsingletons:\n  c: {d: 1, renewal: x}": {"s.yaml:1: invalid: field a is unknown", "s.yaml:2: invalid: field b is unknown", "s.yaml:4: invalid: field d is unknown", `s.yaml:4: invalid: "x", must be one of`},
	} {
		s, err := node.ParseSettings("s.yaml", []byte(text))
		text = text[:min(len(text), 80)]
		require.ErrorIs(t, err, lease.ErrInvalid, text)
		require.Nil(t, s)
		for _, part := range says {
			require.ErrorContains(t, err, part, text)
		}
	}
}

func TestMistakesAreCountedUp(t *testing.T) {
	_, err := node.ParseSettings("s.yaml", []byte(manyKeys(500)))
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.Equal(t, 20, strings.Count(err.Error(), "\n")+1)
	require.ErrorContains(t, err, "and 481 more")
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("k")
		b.WriteString(strings.Repeat("x", i))
		b.WriteString(": 1\n")
	}
	return b.String()
}

func TestLoadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	_, err := node.LoadSettings(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("lease_ttl: 10s\nlease_tll: 1s\n"), 0o600))
	_, err = node.LoadSettings(path)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, path+":2: ")
	require.NoError(t, os.WriteFile(path, []byte("lease_ttl: 10s\n"), 0o600))
	s := must(node.LoadSettings(path))(t)
	require.NotNil(t, s)
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxSettingsBytes+1)), 0o600))
	_, err = node.LoadSettings(path)
	require.ErrorContains(t, err, "more than 262144 bytes")
	_, err = node.LoadSettings(t.TempDir())
	require.Error(t, err, "a directory")
}

// Whatever a file has, it is taken or refused, and says so as all do.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"lease_ttl: 10s\nheartbeat: 3s\nsingletons:\n  cron: {lease_ttl_s: 30, renewal: lazy}\n",
		"leases: {a/: &x {renewal: never}, b: *x}\n---\n", "a: &a {b: *a}", "group: !!map {lease_ttl_s: 1e400}",
		"? [a]\n: b", "singletons: {cron: {<<: {}}}", "%YAML 1.1\n---\n", "lease_ttl: |\n  10s\n", "\xff\xfel\x00", "leases: &l {a: *l}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := node.ParseSettings("s.yaml", data)
		require.Equal(t, err == nil, s != nil)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.True(t, strings.HasPrefix(err.Error(), "s.yaml:"), "%v", err)
		}
	})
}
