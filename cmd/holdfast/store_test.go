package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// keepLeases is a process that holds leases in a file of SQLite, and env is how the command finds it.
func keepLeases(t *testing.T) (k *lease.Keeper, s store.Store, env map[string]string) {
	noLeaks(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
	s, closeStore, err := open.Open(t.Context(), url)
	require.NoError(t, err)
	k, err = lease.NewKeeper(s, lease.Config{ID: "worker-1"})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, k.Close(context.Background()))
		require.NoError(t, closeStore())
	})
	return k, s, map[string]string{"HOLDFAST_STORE": url}
}

func hold(t *testing.T, k *lease.Keeper, name string) *lease.Handle {
	l, err := k.Lease(name, lease.WithMetadata(map[string]string{"pid": "7"}))
	require.NoError(t, err)
	won, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	t.Cleanup(func() { require.NoError(t, l.Release(context.Background())) })
	return l
}

func recordNames(t *testing.T, s store.Store) (all []string) {
	for r, err := range s.List(t.Context(), store.Query{}) {
		require.NoError(t, err)
		all = append(all, r.Name)
	}
	return all
}

// TestTheStoreAlone: what the records tell, from a file that another process holds leases in.
func TestTheStoreAlone(t *testing.T) {
	k, s, env := keepLeases(t)
	l := hold(t, k, "cron/report")
	for line, want := range map[string]said{
		"ls -o name":                      {0, "cron/report\n", ""},
		"ls":                              {0, "worker-1", ""},
		"get cron/report -o yaml":         {0, "id: worker-1", ""},
		"describe cron/report":            {0, "pid=7", ""},
		"doctor cron/report":              {0, "cron/report is held by worker-1.", ""},
		"doctor cron/other":               {0, "cron/other is not known", ""},
		"doctor cron/re":                  {0, "did you mean cron/report?", ""},
		"health":                          {0, "", "no problems"},
		"members":                         {0, "", "no nodes"},
		"singletons -o json":              {0, `"items": []`, ""},
		"release cron/report --read-only": {2, "", "leave --read-only out"},
		"release cron/report":             {3, "", "cron/report is held by worker-1, whose session lives"},
		"release cron/free":               {0, "cron/free is free", ""},
		"undrain worker-1 -y":             {2, "", "undrain asks a node"},
		"migrate":                         {0, "nothing to migrate", ""},
		"check":                           {0, "clock        ok", ""},
		"check -o json --read-only":       {0, `"p99_ms"`, ""},
		"tune -n 20":                      {0, "LOST/HOUR", "round trips"},
		"tune -n 20 -o json --read-only":  {0, `"ttl_ms"`, ""},
		"bench -n 40 --parallel 4":        {0, "leases a second", ""},
		"bench -n 4 -o json":              {0, `"what": "release"`, ""},
	} {
		t.Run(line, func(t *testing.T) {
			got := holdfast(t, env, strings.Fields(line)...)
			require.Equal(t, want.code, got.code, got.out+got.log)
			require.Contains(t, got.out, want.out)
			require.Contains(t, got.log, want.log)
			require.Equal(t, []string{"cron/report"}, recordNames(t, s), "nothing is left behind")
			require.True(t, l.CheckAlive())
		})
	}
}

// TestPartitionsOfTheStoreAlone: who owns which partition, of how many, and what moves.
func TestPartitionsOfTheStoreAlone(t *testing.T) {
	k, _, env := keepLeases(t)
	host, err := k.Lease("partition/shop/orders/host/worker-1/"+k.Owner().Incarnation, lease.WithMetadata(map[string]string{"layout": "count 3", "came": "1"}))
	require.NoError(t, err)
	_, err = host.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Release(context.Background())) })
	hold(t, k, "partition/shop/orders/own/1")
	hold(t, k, "partition/shop/orders/ready/2")
	require.Regexp(t, `shop/orders +partition +3 +1 +2 +1\n`, holdfast(t, env, "shards").out)
	got := holdfast(t, env, "shards", "shop/orders").out
	require.Regexp(t, `(?m)^0$`, got)
	require.Regexp(t, `(?m)^1 +worker-1 +\d`, got)
	require.Regexp(t, `(?m)^2 +worker-1$`, got)
	require.Equal(t, "worker-1\n", regexp.MustCompile(`worker-1\n`).FindString(holdfast(t, env, "get", "partition/shop/orders/own/1", "-o", "yaml").out))
	require.Contains(t, holdfast(t, env, "health").out, "2 partitions have no host")
}

// TestReadOnly: check and tune write nothing where they must not: the next token is the next one.
func TestReadOnly(t *testing.T) {
	k, _, env := keepLeases(t)
	l := hold(t, k, "a")
	require.NoError(t, l.Release(t.Context()))
	_, err := os.ReadFile(strings.TrimPrefix(env["HOLDFAST_STORE"], "sqlite:"))
	require.NoError(t, err)
	wal := strings.TrimPrefix(env["HOLDFAST_STORE"], "sqlite:") + "-wal"
	before, err := os.ReadFile(wal)
	require.NoError(t, err)
	for _, line := range []string{"check", "tune", "ls", "migrate"} {
		require.Equal(t, 0, holdfast(t, env, line, "--read-only").code, line)
	}
	after, err := os.ReadFile(wal)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "%d and %d bytes", len(before), len(after))
}

// TestWatchingAStore: -w prints the changes that another process makes, until it is interrupted.
func TestWatchingAStore(t *testing.T) {
	k, _, env := keepLeases(t)
	t.Setenv("HOLDFAST_STORE", env["HOLDFAST_STORE"])
	ctx, interrupt := context.WithCancel(t.Context())
	in, out, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan int)
	go func() { done <- run(ctx, []string{"ls", "-w", "-o", "name"}, nil, out, new(bytes.Buffer)) }()
	time.Sleep(100 * time.Millisecond)
	hold(t, k, "cron/a")
	line := make([]byte, len("cron/a\n"))
	_, err = io.ReadFull(in, line)
	require.NoError(t, err)
	require.Equal(t, "cron/a\n", string(line))
	interrupt()
	require.Equal(t, codeOK, <-done)
	require.NoError(t, errors.Join(in.Close(), out.Close()))
}

// TestABadStore: what can't be reached is named, and no worse than an error.
func TestABadStore(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"ls", "check"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var out, log bytes.Buffer
			args := append(strings.Fields(line), "--store", "etcd://127.0.0.1:1")
			require.Equal(t, codeError, run(t.Context(), args, nil, &out, &log), line)
			require.Contains(t, out.String()+log.String(), "etcd at http://127.0.0.1:1")
		})
	}
}

// TestQuestions: at a terminal a question comes before an action, and colours are for terminals.
func TestQuestions(t *testing.T) {
	n := serveNode(t)
	t.Setenv("HOLDFAST_NODE", n.URL+"/x")
	for answer, code := range map[string]int{"y\n": codeOK, "\n": codeError, "": codeError} {
		master, terminal := openTerminal(t)
		if answer == "" {
			answer = "\x04" // end of input
		}
		_, err := master.WriteString(answer)
		require.NoError(t, err)
		var out, log bytes.Buffer
		require.Equal(t, code, run(t.Context(), []string{"drain", "shop-4"}, terminal, &out, &log), &log)
		require.Contains(t, log.String(), "drain shop-4: go on? [y/N]")
		require.Len(t, n.took(), map[int]int{codeOK: 1}[code])
	}
	for env, colour := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", env)
		master, terminal := openTerminal(t)
		require.Equal(t, codeOK, run(t.Context(), []string{"members"}, nil, terminal, new(bytes.Buffer)))
		shown := make([]byte, 4096)
		size, err := master.Read(shown)
		require.NoError(t, err)
		for size < len(shown) && !bytes.Contains(shown[:size], []byte("shop-4")) {
			more, err := master.Read(shown[size:])
			require.NoError(t, err)
			size += more
		}
		require.Equal(t, colour, bytes.Contains(shown, []byte("\x1b[")) || !bytes.Contains(shown, []byte("draining")))
	}
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	return master, terminal
}

// schemed is a slow store with a schema, which is missing at first.
type schemed struct {
	*memory.Store
	migrated *bool
}

func (s schemed) Acquire(ctx context.Context, of store.Session, claims []store.Claim) ([]store.Outcome, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Acquire(ctx, of, claims)
}

func (s schemed) Check(context.Context) error {
	if !*s.migrated {
		return fmt.Errorf("%w: no schema", store.ErrDenied)
	}
	return nil
}

func (s schemed) Migrate(context.Context) error { *s.migrated = true; return nil }
func (s schemed) Schema() string                { return "CREATE TABLE x;\n" }

// TestASchema: what is missing is shown before it is made; and check warns of TTLs that a slow store
// can't keep.
func TestASchema(t *testing.T) {
	s := schemed{memory.New(), new(bool)}
	require.NoError(t, open.Register("schemed", func(context.Context, string) (store.Store, func() error, error) {
		return s, func() error { return nil }, nil
	}))
	env := map[string]string{"HOLDFAST_STORE": "schemed:"}
	got := holdfast(t, env, "check")
	require.Equal(t, codeError, got.code)
	require.Contains(t, got.out, "schema  bad       denied by the lease store: no schema")
	got = holdfast(t, env, "migrate")
	require.Equal(t, said{0, "CREATE TABLE x;\n", got.log}, got)
	require.Contains(t, got.log, "--apply")
	require.False(t, *s.migrated)
	require.Contains(t, holdfast(t, env, "migrate", "--apply").out, "this version can use the schema")

	session := store.Session{ID: 1, Owner: store.Owner{ID: "a", Incarnation: "a"}, TTL: 400 * time.Millisecond}
	_, err := s.OpenSession(t.Context(), session)
	require.NoError(t, err)
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				_, _ = s.Renew(context.Background(), []store.Session{session})
			}
		}
	})
	_, err = s.Acquire(t.Context(), session, []store.Claim{{Name: "brief", Nonce: 1}})
	require.NoError(t, err)
	got = holdfast(t, env, "check", "-n", "3")
	close(stop)
	renewing.Wait()
	require.Equal(t, codeOK, got.code, got.out)
	require.Contains(t, got.out, "400 ms, which 1 of them have, is below that")
}
