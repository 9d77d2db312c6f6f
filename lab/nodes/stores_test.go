//go:build linux

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// guarded have a guard of the store's for their journal; Redis and Kubernetes have a comparison of tokens.
var guarded = []Store{overPostgres, overSQLite}

// atNight are those that take seconds to start.
var atNight = func() []Store {
	if !tier.Nightly() {
		return nil
	}
	return []Store{overKubernetes}
}()

// each runs a test on each kind of store, and closes the servers.
func each(t *testing.T, kinds []Store, f func(t *testing.T, s Servers)) {
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			skip(t, kind)
			s := kind.Start(t.Context(), 1)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			f(t, s)
		})
	}
}

// skip skips a test whose servers are not there.
func skip(t *testing.T, s Store) {
	switch s.Name {
	case overEtcd.Name, unwatched.Name:
		etcdtest.Skip(t)
	case overPostgres.Name:
		postgrestest.Skip(t)
	case overRedis.Name:
		redistest.Skip(t)
	case overKubernetes.Name:
		kubetest.Skip(t)
	}
}

// connected is a node's connection, until the test ends.
func connected(t *testing.T, s Servers) Client {
	t.Helper()
	open := openPostgres
	switch s.(type) {
	case *file:
		open = openSQLite
	case redisServer:
		open = openRedis
	case kubeServers:
		open = openKubernetes
	}
	c := open(t.Context(), s.URL(s.Addresses()))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// acquire has name held by a session, in the place of what one of the same owner holds under a
// token.
func acquire(t *testing.T, s store.Store, id store.SessionID, name string, over lease.Token) owned {
	t.Helper()
	sess := store.Session{ID: id, Owner: lease.Owner{ID: "node", Incarnation: "node-1"}, TTL: time.Minute}
	_, err := s.OpenSession(t.Context(), sess)
	require.NoError(t, err)
	out, err := s.Acquire(t.Context(), sess, []store.Claim{{Name: name, Nonce: uint64(id), Supersedes: over}})
	require.NoError(t, err)
	require.True(t, out[0].OK, "%+v", out)
	return owned{name, out[0].Record.Token}
}

// owned is who writes.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

// texts are those of a name, in the order of their positions.
func texts(t *testing.T, s Servers, name int) (all []string) {
	t.Helper()
	h := s.History(t.Context())
	require.Nil(t, h.Changes, "no overlap is excused")
	slices.SortFunc(h.Writes, func(a, b Write) int { return cmp.Compare(a.Position, b.Position) })
	for _, w := range h.Writes {
		if w.Name == name {
			all = append(all, w.Text)
		}
	}
	return all
}

// What a former owner writes is refused, where the store guards its journal at once, else when the next
// owner has written; all else is in the history, in its order.
func TestTheJournalIsFenced(t *testing.T) {
	each(t, slices.Concat(guarded, []Store{overRedis}, atNight), func(t *testing.T, s Servers) {
		c := connected(t, s)
		write := func(o lease.Ownership, text string) error { return c.Write(t.Context(), o, 3, text) }
		former := acquire(t, c.Leases, 1, "name", 0)
		require.NoError(t, write(former, "first"))
		latter := acquire(t, c.Leases, 2, "name", former.token)
		if slices.ContainsFunc(guarded, func(kind Store) bool { return t.Name() == "TestTheJournalIsFenced/"+kind.Name }) {
			require.ErrorIs(t, write(former, "stale"), lease.ErrStale)
			require.ErrorIs(t, write(owned{"another", latter.token}, "of no owner"), lease.ErrStale)
		}
		require.NoError(t, write(latter, "second"))
		require.ErrorIs(t, write(former, "stale"), lease.ErrStale)
		require.NoError(t, write(nil, "third"), "a nil owner is no condition")
		require.NoError(t, c.Write(t.Context(), nil, 4, "elsewhere"))
		last, err := c.Read(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, "third", last)
		none, err := c.Read(t.Context(), 5)
		require.NoError(t, err)
		require.Empty(t, none)
		require.Equal(t, []string{"first", "second", "third"}, texts(t, s, 3))
		require.Equal(t, []string{"elsewhere"}, texts(t, s, 4))
	})
}

// A write that has its position and is not committed has all others of its name wait, so that
// positions are the order of the commits.
func TestPositionsAreTheOrderOfCommits(t *testing.T) {
	each(t, guarded, func(t *testing.T, s Servers) {
		c := connected(t, s)
		var commit func() error
		if f, ok := s.(*file); ok {
			tx, err := f.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), sqliteWrite, 3, "early")
			require.NoError(t, err)
			commit = tx.Commit
		} else {
			conn, err := s.(*servers).both[0].Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), postgresWrite, 3, "early")
			require.NoError(t, err)
			commit = func() error { return tx.Commit(t.Context()) }
		}
		done := make(chan error, 1)
		go func() { done <- c.Write(t.Context(), nil, 3, "late") }()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		require.NoError(t, commit())
		require.NoError(t, <-done)
		require.Equal(t, []string{"early", "late"}, texts(t, s, 3))
	})
}

// harmless are troubles in which a write may succeed at once.
var harmless = []string{"long read by another program", "another program writes all the time",
	"all nodes' ways to the primary delayed", "backends of all clients terminated, again and again",
	"etcd's leader isolated from the other members"} // of which there are none here

// Every trouble (the first three in the commit tier) is one, and when it was undone the store works, with all that it has confirmed.
func TestTroubles(t *testing.T) {
	each(t, append(append(guarded, overRedis), atNight...), func(t *testing.T, s Servers) {
		c := connected(t, s)
		all := s.Troubles()
		if !tier.Nightly() {
			all = all[:min(3, len(all))]
		}
		var confirmed []string
		n := 0
		write := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			n++
			text := fmt.Sprint(n)
			err := c.Write(ctx, nil, 0, text)
			if err == nil {
				confirmed = append(confirmed, text)
			}
			return err
		}
		// All of it, and once more the first one, whose servers may have changed places.
		for i, x := range append(all, all[0]) {
			require.True(t, x.Name != "" && x.Weight > 0 && x.Least > 0 && x.Least <= x.Most && x.Most <= 10, "%+v", x)
			require.NoError(t, write(5*time.Second))
			what, undo, err := x.Do(t.Context(), uint64(i))
			require.NoError(t, err, x.Name)
			err = write(250 * time.Millisecond)
			if !slices.Contains(harmless, x.Name) {
				require.Error(t, err, x.Name)
			}
			began := time.Now()
			require.NoError(t, undo(t.Context()), x.Name)
			undone := time.Since(began)
			require.Eventually(t, func() bool { return write(2*time.Second) == nil }, 20*time.Second, 10*time.Millisecond, x.Name)
			t.Logf("%s, %s: undone in %v, written after %v", x.Name, what, undone, time.Since(began))
			require.Subset(t, texts(t, s, 0), confirmed, x.Name)
		}
	})
}

// A node that begins while the file is locked waits, for longer than sqlite.New does.
func TestANodeBeginsWhileTheFileIsLocked(t *testing.T) {
	t.Parallel()
	s := overSQLite.Start(t.Context(), 1)
	defer func() { require.NoError(t, s.Close()) }()
	_, undo, err := s.Troubles()[0].Do(t.Context(), 0)
	require.NoError(t, err)
	time.AfterFunc(11*time.Second, func() { _ = undo(context.Background()) })
	c := connected(t, s)
	acquire(t, c.Leases, 1, "name", 0)
}

// The troubles of SQLite in which a write succeeds at once: a read keeps the log from being emptied,
// and who writes all the time empties it in between.
func TestTheLogIsInTrouble(t *testing.T) {
	f := overSQLite.Start(t.Context(), 1).(*file)
	defer func() { require.NoError(t, f.Close()) }()
	troubles := map[string]Trouble{}
	for _, x := range f.Troubles() {
		troubles[x.Name] = x
	}
	_, err := f.db.ExecContext(t.Context(), "INSERT INTO torture_busy VALUES (1)")
	require.NoError(t, err)
	_, undo, err := troubles["long read by another program"].Do(t.Context(), 0)
	require.NoError(t, err)
	emptied := func() bool {
		_, err := f.db.ExecContext(t.Context(), "INSERT INTO torture_busy VALUES (2)")
		require.NoError(t, err)
		var busy, pages, done int
		require.NoError(t, f.db.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &pages, &done))
		return busy == 0
	}
	require.False(t, emptied())
	require.NoError(t, undo(t.Context()))
	require.True(t, emptied())

	_, undo, err = troubles["another program writes all the time"].Do(t.Context(), 0)
	require.NoError(t, err)
	last := -1
	turns := 0
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, f.db.QueryRowContext(t.Context(), "SELECT count(*) FROM torture_busy").Scan(&n))
		if n < last {
			turns++
		}
		last = n
		return turns >= 2
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, undo(t.Context()))
}

func TestMain(m *testing.M) {
	Stores = append(Stores, unwatched, earlySQLite)
	Child() // of what a test started
	// A race in a node ends it: a violation.
	if err := os.Setenv("GORACE", "halt_on_error=1 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	time.Sleep(100 * time.Millisecond) // connections that were closed just now
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
