//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openAt(b, file(b))
			sess := open(b, s, 1, owner("a"), time.Hour)
			tokens := make([]store.Token, n)
			claims := make([]store.Claim, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range claims {
					claims[j] = store.Claim{Name: fmt.Sprintf("name/%d", j), Nonce: uint64(i), Supersedes: tokens[j]}
				}
				out, err := s.Acquire(context.Background(), sess, claims)
				if err != nil {
					b.Fatal(err)
				}
				for j := range out {
					tokens[j] = out[j].Record.Token
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/name")
		})
	}
}

func BenchmarkRelease(b *testing.B) {
	s := openAt(b, file(b))
	sess := open(b, s, 1, owner("a"), time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r := win(b, s, sess, "name")
		b.StartTimer()
		if _, err := s.Release(context.Background(), []store.Held{r.Held()}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openAt(b, file(b))
			var sessions []store.Session
			for i := range n {
				sessions = append(sessions, open(b, s, store.SessionID(i+1), owner("a"), time.Hour))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Renew(context.Background(), sessions); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := openAt(b, file(b))
	win(b, s, open(b, s, 1, owner("a"), time.Hour), "name")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(context.Background(), "name"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit is what the disk takes: one page, with and without waiting for it.
func BenchmarkCommit(b *testing.B) {
	for name, synced := range map[string]bool{"synced": true, "not": false} {
		b.Run(name, func(b *testing.B) {
			s := openAt(b, file(b))
			for b.Loop() {
				err := s.write(context.Background(), "bench", synced, func(t *tx) error {
					return t.exec("UPDATE holdfast_meta SET last = last + 1")
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdleWatch is the processor's time that a watch of a quiet file takes each second.
func BenchmarkIdleWatch(b *testing.B) {
	s := openAt(b, file(b))
	ctx, cancel := context.WithCancel(context.Background())
	synced, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for e := range s.Watch(ctx, store.Scope{}) {
			if e.Kind == store.EventSynced {
				close(synced)
			}
		}
	}()
	<-synced
	began, before := time.Now(), used(b)
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
	}
	b.ReportMetric(float64((used(b)-before).Microseconds())/time.Since(began).Seconds(), "cpu-µs/s")
	cancel()
	<-done
}

func used(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNews is how long another process's change takes to be told.
func BenchmarkNews(b *testing.B) {
	path := file(b)
	mine, other := openAt(b, path), openAt(b, path)
	sess := open(b, other, 1, owner("a"), time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	told, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range mine.Watch(ctx, store.Scope{}) {
			told <- struct{}{}
		}
	}()
	<-told
	for b.Loop() {
		b.StopTimer()
		r := win(b, other, sess, "name")
		<-told
		b.StartTimer()
		if _, err := other.Release(context.Background(), []store.Held{r.Held()}); err != nil {
			b.Fatal(err)
		}
		<-told
	}
	cancel()
	<-done
}

func fresh(tb storetest.TB) func() store.Store {
	path := quickFile(tb)
	openAt(tb, path)
	return func() store.Store { return openAt(tb, path) }
}

// spoiled also writes what is no record of this version.
func spoiled(tb storetest.TB) (client func() store.Store, spoil func(name string)) {
	path := quickFile(tb)
	s := openAt(tb, path)
	db := must(sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)"))(tb)
	tb.Cleanup(func() { _ = db.Close() })
	return func() store.Store { return s }, func(name string) {
		_, err := db.ExecContext(context.Background(), "INSERT INTO holdfast_lease VALUES (?, 2, 0, 0, 0, 0, 'what a newer version writes')", name)
		require.NoError(tb, err)
	}
}

// silent makes clients that wait for other calls, which hang.
func silent(tb storetest.TB) func() store.Store {
	s := openAt(tb, quickFile(tb))
	writer := <-s.writer
	takeReaders(s)
	tb.Cleanup(func() { giveReaders(s, readerCount); s.writer <- writer })
	return func() store.Store { return s }
}

func TestConformance(t *testing.T) {
	t.Parallel() // with the other one: both wait, mostly
	storetest.Run(t, fresh, storetest.TTL(2*time.Second), storetest.ExpirySlack(time.Second),
		storetest.BadRecords(spoiled), storetest.Unreachable(silent))
}

// What may not be written says so, and that it is for the operator to change.
func TestAFileThatMayNotBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		again(t) // root may write everything
		return
	}
	ctx := context.Background()
	path := file(t)
	s := must(New(ctx, path))(t)
	sess := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, sess, "job")
	require.NoError(t, s.Close())

	require.NoError(t, os.Chmod(path, 0o400)) // the file
	_, err := New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "readonly")
	require.NoError(t, os.Chmod(path, 0o600))

	dir := filepath.Dir(path)
	require.NoError(t, os.Chmod(dir, 0o500)) // the folder: SQLite needs its companions there
	_, err = New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied, "%v", err)
	_, err = New(ctx, filepath.Join(dir, "new.db"))
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorIs(t, err, os.ErrPermission)
	require.NoError(t, os.Chmod(dir, 0o700))

	require.NoError(t, os.Chmod(path, 0o000)) // anything
	_, err = New(ctx, path)
	require.ErrorIs(t, err, store.ErrDenied)
	companions := must(filepath.Glob(path + "*"))(t) // SQLite made them as the file then was
	for _, c := range companions {
		require.NoError(t, os.Chmod(c, 0o600))
	}
	s = openAt(t, path)
	win(t, s, open(t, s, 2, owner("b"), time.Minute), "other")
}

// A full disk is an error of what does not fit; nothing of that was applied, what is held can be
// read, and when there is room again all goes on.
func TestAFullDisk(t *testing.T) {
	dir := mounted(t, "1m")
	ctx := context.Background()
	s := openAt(t, filepath.Join(dir, "leases.db"))
	sess := open(t, s, 1, owner("a"), time.Minute)
	first := win(t, s, sess, "job")

	var full error
	for i := 0; full == nil; i++ {
		require.Less(t, i, 10_000)
		out, err := s.Acquire(ctx, sess, []store.Claim{{Name: fmt.Sprintf("more/%d", i), Nonce: 1, Metadata: map[string]string{"x": strings.Repeat("x", 10_000)}}})
		if full = err; err == nil {
			require.True(t, out[0].OK)
			continue
		}
		require.ErrorContains(t, err, "full")
		found := must(s.Get(ctx, "job", fmt.Sprintf("more/%d", i)))(t)
		require.Len(t, found, 1)
		require.Equal(t, first.Token, found[0].Token)
	}
	require.False(t, errors.Is(full, store.ErrSessionGone))
	// Room comes back without an operator, when what was held is released and the log is used anew.
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	last := win(t, s, sess, "again")
	require.Greater(t, last.Token, first.Token)
}

// What a power cut takes away, so all that was written since the last commit that waited for the
// disk, is nothing that counts after the boot: no token is issued again.
func TestAPowerCut(t *testing.T) {
	ctx := context.Background()
	before := clock{boot: "before", now: func() time.Duration { return time.Minute }}
	path := file(t)
	s := must(newStore(ctx, path, before))(t)
	defer func() { require.NoError(t, s.Close()) }()
	s.wall = func() time.Time { return time.Unix(0, 0) } // tokens are by the counter alone
	sess := open(t, s, 1, owner("a"), time.Hour)
	var last store.Record
	var synced int64
	for i := range 20 {
		last = win(t, s, sess, fmt.Sprintf("job/%d", i))
		synced = size(t, path+"-wal")
		for range 3 {
			must(s.Renew(ctx, []store.Session{sess}))(t)
		}
		must(s.Release(ctx, []store.Held{last.Held()}))(t)
	}
	require.Greater(t, size(t, path+"-wal"), synced)
	commits := func() (wait int) {
		require.NoError(t, s.with(ctx, s.writer, func(l *link) error { return l.get("PRAGMA synchronous", nil, &wait) }))
		return wait
	}
	require.Equal(t, 1, commits(), "a release waits for no disk (NORMAL)")
	target := store.Session{ID: 1, Owner: owner("a")}
	last = win(t, s, sess, "moved")
	require.Equal(t, 2, commits(), "what issues a token does (FULL)")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.Equal(t, 1, commits())
	out, err := s.Transfer(ctx, []store.Transfer{{Held: last.Held(), To: store.Offer{
		Name: "moved", Owner: target.Owner, Session: target.ID, TTL: time.Hour, Nonce: 9, Lifetime: time.Hour,
	}}})
	require.NoError(t, err)
	require.True(t, out[0].OK, "%+v", out)
	last = out[0].Record
	require.Equal(t, 2, commits())
	synced = size(t, path+"-wal")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	for cut := synced; cut <= size(t, path+"-wal"); cut += 1500 { // the disk had what was synced, and any part of the rest
		copied := filepath.Join(t.TempDir(), "leases.db")
		duplicate(t, path, copied, size(t, path))
		duplicate(t, path+"-wal", copied+"-wal", cut)
		after, err := newStore(ctx, copied, clock{boot: "after", now: func() time.Duration { return time.Second }})
		require.NoError(t, err)
		after.wall = s.wall
		found := must(after.Get(ctx, last.Name))(t)
		require.Empty(t, found)
		require.Greater(t, win(t, after, open(t, after, 2, owner("b"), time.Minute), last.Name).Token, last.Token)
		require.NoError(t, after.Close())
	}
}

func size(t *testing.T, path string) int64 {
	info := must(os.Stat(path))(t)
	return info.Size()
}

// duplicate copies the first bytes of a file. It is another process that does: to close a file
// of SQLite takes its locks away.
func duplicate(t *testing.T, from, to string, bytes int64) {
	out := must(exec.Command("head", "-c", fmt.Sprint(bytes), from).Output())(t)
	require.NoError(t, os.WriteFile(to, out, 0o600))
}

// A copy from before the tables were made, restored in place, is the same file by its name and inode: it
// is begun again, once no process is left that used it.
func TestTablesThatAreGone(t *testing.T) {
	ctx, path := context.Background(), file(t)
	s := must(New(ctx, path))(t)
	win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	for _, table := range []string{"lease", "session", "change", "meta"} {
		must(users(t, path, "").Exec("DROP TABLE holdfast_" + table))(t)
	}
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := New(brief, path)
	require.ErrorIs(t, err, ErrReplaced)
	require.NoError(t, s.Close())
	s = openAt(t, path)
	win(t, s, open(t, s, 2, owner("b"), time.Minute), "job")
}

// Tables of which some are missing are refused, named, and left as they are.
func TestATableThatIsMissing(t *testing.T) {
	for _, what := range []string{"TABLE holdfast_meta", "TABLE holdfast_session", "TABLE holdfast_lease", "TABLE holdfast_change",
		"TRIGGER holdfast_put", "TRIGGER holdfast_bad", "TRIGGER holdfast_delete"} {
		path := file(t)
		s := must(New(context.Background(), path))(t)
		defer func() { require.NoError(t, s.Close()) }()
		sess := open(t, s, 1, owner("a"), time.Minute)
		must(users(t, path, "").Exec("DROP " + what))(t)
		brief, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := New(brief, path) // beside another
		require.Error(t, err, what)
		_, err = s.Acquire(context.Background(), sess, []store.Claim{{Name: "job", Nonce: 1}})
		require.Equal(t, strings.HasPrefix(what, "TABLE"), err != nil, "%s: a Store that is open: %v", what, err)
		require.NoError(t, s.Close())
		_, err = New(context.Background(), path)
		require.ErrorIs(t, err, ErrSchema, what)
		require.ErrorContains(t, err, "holdfast_")
		if what != "TABLE holdfast_meta" {
			require.ErrorContains(t, err, strings.ToLower(what))
		}
	}
}

// Each write looks for the sessions that have ended, and each watch for the next that does: by an index,
// however many there are.
func TestEndsAreFoundByAnIndex(t *testing.T) {
	s := openAt(t, file(t))
	for _, q := range []string{"SELECT id FROM holdfast_session WHERE ends <= 1 ORDER BY ends LIMIT 1", "SELECT min(ends) FROM holdfast_session"} {
		var id, parent, unused int
		var plan string
		require.NoError(t, users(t, s.place.path, "").QueryRow("EXPLAIN QUERY PLAN "+q).Scan(&id, &parent, &unused, &plan))
		require.Contains(t, plan, "SEARCH holdfast_session USING COVERING INDEX holdfast_session_ends", q)
	}
}

// Writers that follow each other with microseconds between them leave renewals their turn: one comes
// behind some four transactions. Where a wait looks every 4 ms, it comes behind 15 to 60.
func TestARenewalBesideAQueueOfWriters(t *testing.T) {
	ctx := t.Context()
	path := quickFile(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	db := users(t, path, "")
	var writers sync.WaitGroup
	var wrote atomic.Int64
	enough := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				tx, err := db.BeginTx(ctx, nil)
				if err != nil || Guard(ctx, tx, of(mine)) != nil {
					t.Errorf("no transaction: %v", err)
					return
				}
				_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
				time.Sleep(10 * time.Millisecond)
				if err != nil || tx.Commit() != nil {
					t.Errorf("not written: %v", err)
					return
				}
				wrote.Add(1)
			}
		})
	}
	var worst, all time.Duration
	var behind []int64 // how many transactions each renewal came behind
	for range 30 {
		began, before := time.Now(), wrote.Load()
		_, err := s.Renew(context.Background(), []store.Session{sess})
		assert.NoError(t, err)
		took := time.Since(began)
		behind = append(behind, wrote.Load()-before)
		worst, all = max(worst, took), all+took
		time.Sleep(time.Millisecond)
	}
	close(enough)
	writers.Wait()
	slices.Sort(behind)
	t.Logf("renewals took %v on average, %v at worst; they came behind %v transactions", all/time.Duration(len(behind)), worst, behind)
	require.Less(t, behind[len(behind)/2], int64(8), "the middle one") // a busy machine delays some for long
}

// What another program's connection may set for itself on the same file.

// connection is one of another program's, with its settings.
func connection(t *testing.T, path string, pragmas ...string) *sql.Conn {
	t.Helper()
	db := must(sql.Open("sqlite", "file:"+path))(t)
	db.SetMaxIdleConns(0) // what is closed is closed
	c := must(db.Conn(t.Context()))(t)
	t.Cleanup(func() { _ = c.Close(); require.NoError(t, db.Close()) })
	for _, q := range pragmas {
		_, err := c.ExecContext(t.Context(), q)
		require.NoError(t, err, q)
	}
	return c
}

// The log can't be taken away while a Store is open, and another journal's file is made one with a
// log by New.
func TestTheJournalsModeOfAnother(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := must(New(ctx, path))(t)
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, path)
	for _, mode := range []string{"DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"} {
		var is string
		err := c.QueryRowContext(ctx, "PRAGMA journal_mode = "+mode).Scan(&is)
		require.True(t, err != nil || is == "wal", "%s: %s", mode, is)
	}
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, s.Close())
	var is string
	require.NoError(t, c.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&is))
	require.Equal(t, "delete", is)
	again := openAt(t, path)
	_, err := c.ExecContext(ctx, "SELECT count(*) FROM holdfast_lease") // what the mode is it finds only now
	require.NoError(t, err)
	require.NoError(t, c.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&is))
	require.Equal(t, "wal", is)
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1, "its holder may believe in it")
	require.Equal(t, held.Token, found[0].Token)
}

// A connection that keeps the file for itself keeps New out with an error that says so, and lets it
// in when it is closed. While a Store is open no connection can.
func TestAnotherKeepsTheFileForItself(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s, err := New(ctx, path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	c := connection(t, path, "PRAGMA locking_mode = EXCLUSIVE", "CREATE TABLE mine (x)")
	require.Eventually(t, func() bool {
		brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, err = New(brief, path)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(err.Error(), "locked") // unless it was too late to ask for the lock
	}, soon, time.Millisecond)
	require.NoError(t, c.Close())

	s = openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Hour)
	c = connection(t, path, "PRAGMA busy_timeout = 1000", "SELECT count(*) FROM mine", "PRAGMA locking_mode = EXCLUSIVE")
	_, err = c.ExecContext(ctx, "INSERT INTO mine VALUES (1)")
	require.Error(t, err, "the Store is there")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, c.Close())
	must(s.Renew(ctx, []store.Session{sess}))(t)
}

// A transaction that may not write is refused by Guard; what a user's connection sets for itself
// otherwise changes nothing, also where it is the only one.
func TestGuardOnOddConnections(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := openAt(t, path)
	users(t, path, "")
	mine := win(t, s, open(t, s, 1, owner("a"), time.Hour), "job")
	stale := ownership{"job", mine.Token - 1}
	for settings, want := range map[string]error{
		"mode=ro":                              store.ErrDenied,
		"_pragma=query_only(1)":                store.ErrDenied,
		"_pragma=synchronous(OFF)":             nil,
		"_pragma=recursive_triggers(1)":        nil,
		"_pragma=foreign_keys(1)":              nil,
		"_pragma=cell_size_check(1)":           nil,
		"_pragma=case_sensitive_like(1)":       nil,
		"_pragma=reverse_unordered_selects(1)": nil,
		"_pragma=wal_autocheckpoint(0)":        nil,
		"_pragma=temp_store(2)":                nil,
	} {
		db := must(sql.Open("sqlite", "file:"+path+"?"+settings))(t)
		db.SetMaxOpenConns(1)
		tx := must(db.BeginTx(ctx, nil))(t)
		err := Guard(ctx, tx, of(mine))
		if want != nil {
			require.ErrorIs(t, err, want, settings)
		} else {
			require.NoError(t, err, settings)
			require.ErrorIs(t, Guard(ctx, tx, stale), lease.ErrStale, settings)
			_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
			require.NoError(t, err, settings)
			require.NoError(t, tx.Commit(), settings)
		}
		_ = tx.Rollback()
		require.NoError(t, db.Close())
	}
	// A temporary table of the same name is not the one that is asked.
	db := users(t, path, "")
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(ctx, "CREATE TEMP TABLE holdfast_lease AS SELECT * FROM main.holdfast_lease; UPDATE temp.holdfast_lease SET token = ?",
		int64(stale.token))
	require.NoError(t, err)
	tx := begin(t, db)
	require.ErrorIs(t, Guard(ctx, tx, stale), lease.ErrStale)
	require.NoError(t, Guard(ctx, tx, of(mine)))
}

// A reader that stays keeps the log from being emptied: it grows, all goes on, and when the reader
// goes the log is used from its beginning.
func TestALongRead(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, s.place.path, "BEGIN", "SELECT count(*) FROM holdfast_lease")
	renew := func(n int) {
		for range n {
			must(s.Renew(ctx, []store.Session{sess}))(t)
		}
	}
	renew(3000)
	grown := size(t, s.place.path+"-wal")
	require.Greater(t, grown, int64(3000*4096))
	must(c.ExecContext(ctx, "COMMIT"))(t)
	renew(3000)
	require.Less(t, size(t, s.place.path+"-wal"), grown+64<<10)
	found := must(s.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	t.Logf("%d bytes of log for a renewal", grown/3000)
}

// VACUUM moves all rows; nothing of what is held is lost.
func TestVacuum(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, s.place.path, "PRAGMA busy_timeout = 5000", "VACUUM")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	found := must(s.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	must(c.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"))(t)
	require.False(t, claim1(t, s, open(t, s, 2, owner("b"), time.Hour), store.Claim{Name: "job", Nonce: 2}).OK)
}

// A file system that becomes read-only fails writes with lease.ErrDenied and answers reads; when it
// can be written again all goes on.
func TestAFileSystemThatBecomesReadOnly(t *testing.T) {
	dir := mounted(t, "4m")
	ctx := t.Context()
	s := openAt(t, filepath.Join(dir, "leases.db"))
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	// Files that are open for writing keep it writable: it is another process's view that changes.
	err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=4m")
	if err == nil {
		t.Fatal("the kernel has taken away what is open")
	}
	require.ErrorIs(t, err, unix.EBUSY)
	require.NoError(t, s.Close())
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=4m"))
	_, err = New(ctx, s.place.path)
	require.ErrorIs(t, err, store.ErrDenied)
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	again := openAt(t, s.place.path)
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1)
}

// New on a disk without room is an error, and goes on where there is some.
func TestNewOnAFullDisk(t *testing.T) {
	dir := mounted(t, "64k")
	ctx := t.Context()
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	path := filepath.Join(dir, "leases.db")
	for range 3 {
		_, err := New(ctx, path)
		require.Error(t, err)
		t.Log(err)
	}
	require.NoError(t, os.Remove(filler))
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	s := openAt(t, path)
	win(t, s, open(t, s, 1, owner("a"), time.Hour), "job")
}

// A boot that another process of this kernel does not agree about (some containers are given an ID
// of their own) is told as that.
func TestAnotherBootIDOnOneKernel(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	one := clock{boot: "one", now: func() time.Duration { return time.Hour }}
	s := must(newStore(ctx, path, one))(t)
	defer func() { require.NoError(t, s.Close()) }()
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := newStore(brief, path, clock{boot: "two", now: one.now})
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorIs(t, err, ErrOtherMachine)
	require.ErrorContains(t, err, "boot one")
	_, err = s.Renew(ctx, []store.Session{sess})
	require.NoError(t, err, "the first goes on")
}

// The small file beside it that this user may not write is an error that says so.
func TestTheFileBesideItMayNotBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		again(t)
		return
	}
	path := file(t)
	s, err := New(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-holdfast")
	require.NoError(t, os.Chmod(name, 0o400))
	_, err = New(t.Context(), path)
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, name)
}
