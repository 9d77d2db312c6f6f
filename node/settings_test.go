package node_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

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
		"lease_ttl: 10s\n\nlease_ttl: 20s":                               {"s.yaml:3: ", "lease_ttl"},
		"singletons: {a: {}, b: {}, a: {}}":                              {`"a"`},
		"singletons: {7: {}, '7': {}}":                                   {`s.yaml:1: invalid: mapping key "7" already defined at line 1`},
		"lease_ttl: 10s\nlease_ttl_s: 10":                                {"s.yaml:1: invalid: lease_ttl and lease_ttl_s, must be one of them"},
		"lease_ttl: 10s\nheartbeat_s: 3\nrenewal: 0.5":                   {"s.yaml:1: invalid: heartbeat and renewal, must be one of them"},
		"lease_ttl: 10":                  {"s.yaml:1: invalid: cannot construct !!int `10` into time.Duration"},
		"lease_ttl: [10s]":               {"cannot construct !!seq into time.Duration"},
		"lease_ttl: 299ms":               {"s.yaml:1: invalid: a TTL of 299ms, must be at least 300ms"},
		"lease_ttl: 8761h":               {"s.yaml:1: invalid: lease_ttl: 8761h0m0s, must be at least 1ms and at most 8760h0m0s"},
		"lease_ttl: -10s":                {"-10s, must be at least 1ms"},
		"lease_ttl_s: 10s":               {`s.yaml:1: invalid: "10s", must be a number of seconds such as 30 or 0.5`},
		"lease_ttl_s: 0":                 {"lease_ttl: 0s, must be at least 1ms"},
		"lease_ttl_s: .nan":              {`".nan", must be a number of seconds`},
		"lease_ttl_s: 31536001":          {"at most 8760h0m0s"},
		"lease_ttl: 10s\nheartbeat: 10s": {"a heartbeat of 10s, must be below the TTL of 10s"},
		"lease_ttl: 10s\nsingletons:\n  cron:\n    heartbeat_s: 3\n": {`s.yaml:3: singletons "cron": invalid: a heartbeat of 3s without a TTL, needs lease_ttl or lease_ttl_s beside it`},
		"heartbeat: 3s":                         {"s.yaml:1: invalid: a heartbeat of 3s without a TTL"},
		"renewal: lazzy":                        {`s.yaml:1: invalid: "lazzy", must be one of default, eager, lazy`},
		"renewal: 1.5":                          {"s.yaml:1: invalid: 1.5, must be above 0 and below 1"},
		"renewal: -0.1":                         {"must be above 0"},
		"renewal: never":                        {"renewal never, must be a policy that renews for as long as the lease is held"},
		"group: {renewal: activity}":            {"group: invalid: renewal activity"},
		"singletons: {cron: {renewal: manual}}": {`singletons "cron": invalid: renewal manual`},
		"sharded: {account: {renewal: never}}":  {`sharded "account": invalid: renewal never`},
		"singletons: [cron]":                    {"cannot construct !!seq into map[string]*node.entry"},
		"singletons: {'': {}}":                  {`singletons "": invalid: empty`},
		"leases: {a//b: {}}":                    {"has an empty segment"},
		"leases:\n  ? " + longKey + "\n  : {}":  {"513 bytes, at most 512"},
		"leases: {[a]: {}}":                     {"cannot construct !!seq into string"},
		"singletons:\n  : {lease_ttl: 5s}":      {"s.yaml:2: invalid: a key without a name"},
		"group: {~: 5s}":                        {"a key without a name"},
		"leases:\n  a: {}\n  b//c:\n  //:\n":    {`s.yaml:3: leases "b//c": invalid: has an empty segment`, `s.yaml:4: leases "//"`},
		"- a":                                   {"s.yaml:1: invalid: cannot construct !!seq into node.settings"},
		"a: b: c":                               {"s.yaml:1: invalid: mapping values are not allowed"},
		"lease_ttl: 10s\n---\nlease_ttl: 20s\n": {"2 documents, must be one"},
		"a: *b":                                 {"s.yaml:1: invalid: unknown anchor"},
		strings.Repeat("[", 100000):             {"s.yaml:1: invalid: exceeded max depth"},
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

// counting is a store that counts renewals by the TTL of the session.
type counting struct {
	*memory.Store
	mu      sync.Mutex
	renewed map[time.Duration]int
}

func newCounting() *counting { return &counting{Store: memory.New(), renewed: map[time.Duration]int{}} }

func (c *counting) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	c.mu.Lock()
	for _, s := range sessions {
		c.renewed[s.TTL]++
	}
	c.mu.Unlock()
	return c.Store.Renew(ctx, sessions)
}

func (c *counting) renewals(ttl time.Duration) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed[ttl]
}

// ttlOf is the TTL of a record that stands, or will.
func ttlOf(t *testing.T, n *node.Node, name string) (ttl time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := n.Keeper().Get(t.Context(), name)
		ttl = r.TTL
		return err == nil
	}, soon, 5*time.Millisecond, name)
	return ttl
}

// alone is a node without a network.
func alone(s *node.Settings) func(*node.Config) {
	return func(c *node.Config) { c.Listen, c.Plaintext, c.Settings = "", false, s }
}

func TestSettingsReachWhatANodeStarts(t *testing.T) {
	store := newCounting()
	n := start(t, "a", store, alone(parse(t, `
lease_ttl: 40s
heartbeat: 40ms
group: {lease_ttl_s: 41, renewal: lazy}
singletons:
  cron: {lease_ttl: 42s}
  mail: {lease_ttl: 43s, heartbeat_s: 0.05}
  lazy: {lease_ttl: 44s, renewal: lazy}
sharded:
  account: {lease_ttl: 45s, renewal: adaptive}
leases:
  cache/rates: {lease_ttl: 10m, renewal: never}
  quick: {lease_ttl: 100h, heartbeat_s: 0.05}
  session/: {lease_ttl: 15m, renewal: activity}
  session/vip/: {lease_ttl: 20m}
`)))
	for _, name := range []string{"plain", "cron", "mail", "lazy"} {
		_, err := n.Singleton(name, adders(), singleton.WithLeaseOptions(lease.WithTTL(7*time.Second), lease.WithRenewal(lease.RenewEager())))
		require.NoError(t, err)
	}
	must(n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 2}))(t)
	hold := func(name string, get func(string, ...lease.Option) (*lease.Handle, error)) {
		h := must(get(name, lease.WithMetadata(map[string]string{"for": "test"})))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		t.Cleanup(func() { _ = h.Release(context.Background()) })
	}
	for _, name := range []string{"quick", "cache/rates", "session/7", "session/vip/8", "session", "other"} {
		hold(name, n.Lease)
	}
	hold("direct", n.Keeper().Lease)
	for name, ttl := range map[string]time.Duration{
		"singleton/plain": 7 * time.Second, // the file says nothing of it
		"singleton/cron":  42 * time.Second, "singleton/mail": 43 * time.Second, "singleton/lazy": 44 * time.Second,
		"leader/bank": 41 * time.Second, "coordinator/bank/account": 45 * time.Second, "shard/bank/account/0": 45 * time.Second,
		"cache/rates": 10 * time.Minute, "session/7": 15 * time.Minute, "session/vip/8": 20 * time.Minute,
		"session": 40 * time.Second, "other": 40 * time.Second, "direct": 40 * time.Second,
	} {
		require.Equal(t, ttl, ttlOf(t, n, name), name)
	}
	r := must(n.Keeper().Get(t.Context(), "other"))(t)
	require.Equal(t, "test", r.Metadata["for"], "options of code that the file does not speak of count")
	for _, often := range []time.Duration{40 * time.Second, 43 * time.Second, 100 * time.Hour} {
		require.Eventually(t, func() bool { return store.renewals(often) >= 3 }, soon, 5*time.Millisecond, "%v", often)
	}
	// At the fraction of the top, so after 1.2 s.
	require.Eventually(t, func() bool { return store.renewals(20*time.Minute) > 0 }, soon, 5*time.Millisecond)
	for _, seldom := range []time.Duration{41 * time.Second, 44 * time.Second, 45 * time.Second, 10 * time.Minute, 15 * time.Minute} {
		require.Zero(t, store.renewals(seldom), "%v", seldom)
	}
	require.Empty(t, n.UnusedSettings())
}

func TestSettingsCountMoreThanConfig(t *testing.T) {
	n := start(t, "a", memory.New(), alone(parse(t, "lease_ttl: 41s\nrenewal: eager")), func(c *node.Config) {
		c.Lease = lease.Config{TTL: 2 * time.Second, RenewFraction: 0.95}
	})
	require.Equal(t, 41*time.Second, n.Keeper().Info().TTL)
	members := must(n.Keeper().List(t.Context(), "member/"))(t)
	require.Len(t, members, 1)
	require.Equal(t, 41*time.Second, members[0].TTL)
	n = start(t, "a", memory.New(), alone(new(node.Settings)))
	require.Equal(t, 2*time.Second, n.Keeper().Info().TTL, "the zero Settings say nothing")
	must(n.Lease("a"))(t)
	stop(t, n)
	_, err := n.Lease("b")
	require.ErrorIs(t, err, node.ErrStopped)
	_, err = new(node.Node).Lease("b")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.Empty(t, new(node.Node).UnusedSettings())
}

// What stands at the top is for what nothing else is said of, in the file or in code.
func TestCodeCountsMoreThanTheTopOfSettings(t *testing.T) {
	n := start(t, "a", memory.New(), alone(parse(t, "renewal: lazy\nleases: {a: {renewal: adaptive}, b: {lease_ttl: 5s}}")))
	for name, c := range map[string]struct {
		code []lease.Option
		is   lease.Renewal
	}{
		"a": {[]lease.Option{lease.WithRenewal(lease.RenewNever())}, lease.RenewAdaptive()},
		"b": {[]lease.Option{lease.WithRenewal(lease.RenewNever())}, lease.RenewNever()},
		"c": {[]lease.Option{lease.WithRenewal(lease.RenewEager())}, lease.RenewEager()},
		"d": {nil, lease.RenewLazy()},
	} {
		h := must(n.Lease(name, c.code...))(t)
		require.Equal(t, c.is, h.Renewal(), name)
	}
}

// floored is a store with a least TTL.
type floored struct{ *memory.Store }

func (f floored) Limits() store.Limits {
	l := f.Store.Limits()
	l.MinTTL = 5 * time.Second
	return l
}

func TestSettingsThatCanNotBeKeptFailStart(t *testing.T) {
	for text, says := range map[string]string{
		"\nsingletons:\n  cron: {lease_ttl: 20s, renewal: 0.9}":     `Settings: s.yaml:3: singletons "cron": lease.RenewAt: invalid: renewal × (1 + jitter) + margin = `,
		"leases:\n  a: {lease_ttl: 10s, heartbeat: 9s}":             `Settings: s.yaml:2: leases "a": `,
		"singletons:\n  cron: {lease_ttl: 4s}":                      "must be at least 5s",
		"group: {lease_ttl: 4s}":                                    "Settings: s.yaml:1: group: lease.WithTTL",
		"\n\nlease_ttl: 4s":                                         "Lease and Settings: s.yaml:3: ",
		"renewal: 0.9":                                              "Lease and Settings: s.yaml:1: ",
		"lease_ttl: 5s\nheartbeat: 4.6s":                            "Lease and Settings: s.yaml:1: ",
		"renewal: lazy\nsingletons:\n  cron: {heartbeat_s: 0.0001}": "",
	} {
		s, err := node.ParseSettings("s.yaml", []byte(text))
		if says == "" {
			require.ErrorIs(t, err, lease.ErrInvalid)
			continue
		}
		require.NoError(t, err)
		n, err := node.Start(t.Context(), node.Config{ID: "a", Store: floored{memory.New()}, Group: "bank", Logger: zap.NewNop(), Settings: s})
		require.ErrorIs(t, err, lease.ErrInvalid, text)
		require.ErrorContains(t, err, says, text)
		require.Nil(t, n)
	}
}

func TestSettingsThatAreNotUsedAreTold(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	s := parse(t, "group: {lease_ttl: 5s}\nsingletons:\n  cron: {}\n  corn: {}\nsharded:\n  account: {}\nleases:\n  a: {}\n  b/: {}\n  a/c:\n  a/: {}\n")
	n := start(t, "a", memory.New(), alone(s), func(c *node.Config) { c.Group, c.Logger = "", zap.New(core) })
	all := []string{"group (line 1)", `singletons "cron" (line 3)`, `singletons "corn" (line 4)`, `sharded "account" (line 6)`, `leases "a" (line 8)`, `leases "b/" (line 9)`, `leases "a/c" (line 10)`, `leases "a/" (line 11)`}
	require.Equal(t, all, n.UnusedSettings())
	must(n.Singleton("cron", adders()))(t)
	told := func() (lines []string) {
		for _, l := range logs.FilterMessageSnippet("settings that").All() {
			require.Equal(t, "s.yaml", l.ContextMap()["file"])
			lines = append(lines, l.Message)
		}
		return lines
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	const first = `settings that this node has not used: group (line 1), singletons "corn" (line 4), sharded "account" (line 6)`
	require.Eventually(t, func() bool { return len(told()) == 1 }, soon, 5*time.Millisecond)
	for _, name := range []string{"b/7", "a/c"} {
		must(n.Lease(name))(t)
	}
	require.Equal(t, []string{all[0], all[2], all[3], all[4], all[7]}, n.UnusedSettings(), "nothing is said of a/c, not what is of a/")
	cancel()
	require.NoError(t, <-ran)
	require.Equal(t, []string{first, first + `, leases "a" (line 8), leases "a/" (line 11)`}, told())
}
