//go:build linux

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// follow collects the events of a watch, behind its snapshot, and how it ended.
func follow(t *testing.T, s *Store) (events <-chan store.Event, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	synced, told, end := make(chan struct{}), make(chan store.Event, 100), make(chan error, 1)
	go func() {
		var last error
		for e, err := range s.Watch(ctx, store.Scope{}) {
			switch {
			case err != nil:
				last = err
			case e.Kind == store.EventSynced:
				close(synced)
			case e.Kind != store.EventPut:
				told <- e
			}
		}
		end <- last
		close(end)
	}()
	t.Cleanup(func() { cancel(); <-end })
	<-synced
	return told, end
}

// What is done by hand, with any program, is told to watches.
func TestADeletionByHandIsTold(t *testing.T) {
	s := openAt(t, file(t))
	db := users(t, s.place.path, "")
	r := win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	events, _ := follow(t, s)
	must(db.Exec("DELETE FROM holdfast_lease WHERE name = 'job'"))(t)
	e := <-events
	require.Equal(t, store.EventDelete, e.Kind)
	require.Equal(t, "job", e.Record.Name)
	require.Greater(t, e.Revision, r.Token)
	next := win(t, s, open(t, s, 2, owner("b"), time.Minute), "job")
	require.Greater(t, next.Token, e.Revision)
}

// A watch that is behind by more than is kept ends with an error, and not with a gap.
func TestAWatchThatIsTooFarBehind(t *testing.T) {
	s := openAt(t, file(t))
	db := users(t, s.place.path, "&_txlock=immediate")
	sess := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, sess, "one")
	win(t, s, sess, "two")
	_, ended := follow(t, s)
	tx := begin(t, db)
	must(tx.Exec("DELETE FROM holdfast_lease"))(t)
	_, err := tx.Exec("DELETE FROM holdfast_change WHERE seq < (SELECT max(seq) FROM holdfast_change)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, <-ended, ErrWatchOverrun)

	_, again := follow(t, s) // and another snapshot can be had
	win(t, s, sess, "three")
	require.Empty(t, again)
}

// The log does not grow for ever.
func TestTheLogIsCut(t *testing.T) {
	ctx := context.Background()
	s := openAt(t, file(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	db := users(t, s.place.path, "")
	_, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2 * ?)
		INSERT INTO holdfast_change (rev, kind, name) SELECT 1, 2, 'x' FROM n`, kept)
	require.NoError(t, err)
	r := win(t, s, sess, "job")
	must(s.Release(ctx, []store.Held{r.Held()}))(t)
	var rows int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM holdfast_change").Scan(&rows))
	require.Equal(t, kept, rows)
}

// stream has a watch's events come one by one, with the error that ends it as the last one's name.
func stream(t *testing.T, s *Store, deletions bool) <-chan string {
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan string, 100)
	go func() {
		defer close(told)
		for e, err := range s.Watch(ctx, store.Scope{Deletions: deletions}) {
			if err != nil {
				told <- err.Error()
				return
			}
			told <- fmt.Sprint(e.Kind, e.Record.Name)
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range told {
		}
	})
	return told
}

func next(t *testing.T, told <-chan string) string {
	t.Helper()
	select {
	case e := <-told:
		return e
	case <-time.After(soon):
		require.Fail(t, "nothing is told")
		return ""
	}
}

// A watch begins without the write lock, where nothing has run out: neither does it wait for one
// who writes, nor does a renewal wait until it has read all.
func TestAWatchBeginsBesideWriters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	put, synced := fmt.Sprint(store.EventPut, "job"), fmt.Sprint(store.EventSynced)
	c := connection(t, s.place.path, "BEGIN IMMEDIATE")
	all, deletions := stream(t, s, false), stream(t, s, true)
	require.Equal(t, put, next(t, all))
	require.Equal(t, synced, next(t, all))
	require.Equal(t, synced, next(t, deletions))
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	must(s.Release(ctx, []store.Held{mine.Held()}))(t)
	for _, told := range []<-chan string{all, deletions} {
		require.Equal(t, fmt.Sprint(store.EventDelete, "job"), next(t, told))
	}
}

// takeReaders has the Store's reads wait, until as many are given back.
func takeReaders(s *Store) {
	for range readerCount {
		if l := <-s.readers; l != nil {
			l.close()
		}
	}
}

func giveReaders(s *Store, n int) {
	for range n {
		s.readers <- nil
	}
}

// What changes after a watch was registered, and before its snapshot, is told by that, once.
func TestAChangeBeforeASnapshot(t *testing.T) {
	t.Parallel()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	first := stream(t, s, false)
	synced := fmt.Sprint(store.EventSynced)
	require.Equal(t, synced, next(t, first))
	takeReaders(s)
	goOn := sync.OnceFunc(func() { giveReaders(s, readerCount) })
	defer goOn()
	second := stream(t, s, false)
	third := feed.NewWatch[feed.Change](store.Scope{Prefix: "none"}, 1)
	run := s.hub.Subscribe(third, nil)
	defer s.hub.Unsubscribe(run, third)
	registered := func() bool { return s.hub.Watches() == 3 }
	require.Eventually(t, registered, soon, time.Millisecond)
	mine := win(t, s, sess, "job")
	put := fmt.Sprint(store.EventPut, "job")
	require.Equal(t, put, next(t, first), "the follower has told of it")
	goOn()
	require.Equal(t, put, next(t, second))
	require.Equal(t, synced, next(t, second))
	must(s.Release(t.Context(), []store.Held{mine.Held()}))(t)
	require.Equal(t, fmt.Sprint(store.EventDelete, "job"), next(t, second))
}

// runOut is a statement after which a session is over, and not removed yet.
func runOut(sess store.Session) string {
	return fmt.Sprintf("UPDATE holdfast_session SET ends = 1 WHERE id = %d", sess.ID)
}

// A read that has met a session that is over, however long it takes, keeps nobody from writing:
// neither does a process that is stopped in it.
func TestAReadKeepsNobodyFromWriting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	other := openAt(t, s.place.path)
	sess := open(t, s, 1, owner("a"), time.Minute)
	dead := open(t, s, 2, owner("b"), time.Minute)
	connection(t, s.place.path, runOut(dead))
	finals := 0
	var renewed error
	var grants []store.Grant
	_, err := s.read(ctx, "test", func(v *view) ([]row, error) {
		if !v.final {
			v.over = true // as if it had met dead's lease
			return nil, nil
		}
		finals++
		brief, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		grants, renewed = other.Renew(brief, []store.Session{sess, dead})
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, finals)
	require.NoError(t, renewed, "a renewal waits for a read")
	require.NoError(t, grants[0].Err)
	require.ErrorIs(t, grants[1].Err, store.ErrSessionGone)
}

// What makes the past final: each clock that decides what is over, a writer's and that of a final
// read, is read while no other can write, and lies before no writer's that has committed.
func TestTheClockIsReadUnderTheWriteLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := must(machineClock())(t)
	path := quickFile(t)
	other := openAt(t, path)
	probe := connection(t, path)
	alone := map[time.Duration]bool{} // by reading: had another the lock?
	looking := false
	s, err := newStore(ctx, path, clock{boot: c.boot, now: func() time.Duration {
		now := c.now()
		if looking {
			_, err := probe.ExecContext(ctx, "BEGIN IMMEDIATE")
			alone[now] = busy(err)
			if err == nil {
				_, err = probe.ExecContext(ctx, "ROLLBACK")
			}
			assert.True(t, err == nil || busy(err), "%v", err)
		}
		return now
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	looking = true
	for range 3 {
		var first, final, before, after time.Duration
		moment := func(of *time.Duration) func(t *tx) error {
			return func(t *tx) error { *of = t.now; return nil }
		}
		require.NoError(t, other.write(ctx, "test", false, moment(&before)))
		_, err = s.read(ctx, "test", func(v *view) ([]row, error) {
			if v.final {
				final = v.now
			} else {
				first, v.over = v.now, true
			}
			return nil, nil
		})
		require.NoError(t, err)
		require.NoError(t, s.write(ctx, "test", false, moment(&after)))
		require.Contains(t, alone, first)
		require.False(t, alone[first], "what stands is read without the lock")
		require.True(t, alone[final], "a final read's")
		require.True(t, alone[after], "a writer's")
		require.IsIncreasing(t, []time.Duration{before, first, final, after})
	}
}

// However many reads wait for a lock that another program keeps, what stands is told at once, and
// each that ends says what it waited for. When the lock is free all are answered.
func TestReadsThatWaitLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	long := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, long, "live")
	sess := open(t, s, 2, owner("b"), time.Minute)
	win(t, s, sess, "dead")
	c := connection(t, s.place.path, runOut(sess), "BEGIN IMMEDIATE")

	const waiting = 3 * readerCount
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ends, answers := make(chan error, waiting), make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := s.Get(brief, "dead")
			ends <- err
		}()
		go func() {
			found, err := s.Get(ctx, "dead")
			if len(found) > 0 {
				err = errors.New("it stands")
			}
			answers <- err
		}()
	}
	for n := 0; brief.Err() == nil; n++ {
		quick, cancel := context.WithTimeout(ctx, soon)
		for name, read := range reads(s, "live", long) { // the lock is not given back meanwhile
			stands, err := read(quick)
			require.NoError(t, err, "%s %d", name, n)
			require.True(t, stands, "%s %d", name, n)
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
	}
	locked, queued := 0, 0
	for range waiting {
		err := <-ends
		require.ErrorIs(t, err, context.DeadlineExceeded)
		switch {
		case busy(err):
			locked++
		case strings.Contains(err.Error(), "other calls"):
			queued++
		default: // a goroutine that came late to say so
			t.Log(err)
		}
	}
	require.NotZero(t, queued, "what waits says for what")
	require.LessOrEqual(t, locked, 1, "one at a time asks for the lock")
	require.Empty(t, answers)
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	for range waiting {
		require.NoError(t, <-answers)
	}
}

// reads are the ways to ask for a record of a session, which must all say the same: whether it
// stands.
func reads(s *Store, name string, sess store.Session) map[string]func(context.Context) (bool, error) {
	one := func(list func(yield func(store.Record, error) bool)) (bool, error) {
		for _, err := range list {
			return err == nil, err
		}
		return false, nil
	}
	return map[string]func(context.Context) (bool, error){
		"get":  func(ctx context.Context) (bool, error) { r, err := s.Get(ctx, name); return len(r) > 0, err },
		"list": func(ctx context.Context) (bool, error) { return one(s.List(ctx, store.Query{Prefix: name})) },
		"list session": func(ctx context.Context) (bool, error) {
			return one(s.List(ctx, store.Query{Session: sess.ID}))
		},
	}
}

// A session that is over by the clock, and whose renewal, begun in time, is not committed yet, is
// not told as gone: it would stand again. Until that is known the read waits.
func TestAReadWaitsForARenewalThatIsBeingCommitted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := file(t)
	var now atomic.Int64
	c := clock{boot: "boot", now: func() time.Duration { return time.Hour + time.Duration(now.Load()) }}
	at := func() *Store {
		s := must(newStore(ctx, path, c))(t)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	holder, reader := at(), at()
	long := open(t, holder, 2, owner("a"), time.Hour)
	win(t, holder, long, "long")
	sess := open(t, holder, 1, owner("a"), time.Minute)
	held := win(t, holder, sess, "job")
	must(holder.Renew(ctx, []store.Session{sess}))(t)
	began, goOn, renewed := make(chan bool, 1), make(chan struct{}), make(chan error, 1)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	go func() {
		renewed <- holder.write(ctx, "renew", false, func(tx *tx) error {
			o, ok, err := tx.live(sess)
			if err == nil {
				o.TTL = time.Hour // so that it has not ended once more
				err = tx.renew(o)
			}
			began <- ok
			<-goOn
			return err
		})
	}()
	require.True(t, <-began, "it is renewed in time")
	now.Add(int64(time.Minute))
	for name, read := range reads(reader, "job", sess) {
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := read(brief)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "%s: it is said to be gone, and is renewed", name)
	}
	for name, read := range reads(reader, "long", long) {
		stands, err := read(ctx)
		require.NoError(t, err, name)
		require.True(t, stands, "%s: what stands is told at once", name)
	}
	var all sync.WaitGroup
	for name, read := range reads(reader, "job", sess) {
		all.Go(func() {
			stands, err := read(ctx)
			assert.NoError(t, err, name)
			assert.True(t, stands, "%s: it was renewed", name)
		})
	}
	time.Sleep(50 * time.Millisecond)
	release()
	require.NoError(t, <-renewed)
	all.Wait()
	found := must(reader.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	require.NotZero(t, found[0].Left)
}

// What has run out is told as gone also where it can't be removed, and at once.
func TestWhatHasRunOutIsGone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), 30*time.Millisecond)
	db := users(t, s.place.path, "")
	_, err := db.ExecContext(ctx, "INSERT INTO holdfast_lease VALUES ('job', 1, 1, 1, 1, 0, NULL)")
	require.NoError(t, err)
	time.Sleep(40 * time.Millisecond)
	for name, read := range reads(s, "job", sess) {
		stands, err := read(ctx)
		require.False(t, stands, name)
		if name == "list session" {
			require.ErrorIs(t, err, store.ErrSessionGone)
		} else {
			require.NoError(t, err, name)
		}
	}
	var rows int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM holdfast_lease").Scan(&rows))
	require.Equal(t, 1, rows, "a read removes nothing")
}
