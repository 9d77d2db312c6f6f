//go:build linux

package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// closing closes a Store, which must not take long.
func closing(t *testing.T, s *Store) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "Close waits for what waits for another's lock")
	}
}

// wasClosed checks the error of a call whose own context goes on.
func wasClosed(t *testing.T, name string, err error) {
	t.Helper()
	require.ErrorIs(t, err, errClosed, name)
	require.NotErrorIs(t, err, context.Canceled, "%s: its caller has not left", name)
}

// Close ends calls that wait for a lock that another keeps, for as long as it likes, and those
// that wait for these.
func TestCloseEndsWhatWaitsForALock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	long := open(t, s, 2, owner("b"), time.Minute)
	win(t, s, long, "job")
	c := connection(t, s.Path(), runOut(sess), "BEGIN IMMEDIATE")
	calls := map[string]func() error{
		"renew":   func() error { _, err := s.Renew(ctx, []store.Session{long}); return err },
		"session": func() error { _, err := s.OpenSession(ctx, sess); return err },
		"acquire": func() error { _, err := s.Acquire(ctx, long, []store.Claim{{Name: "x", Nonce: 1}}); return err },
		"release": func() error { _, err := s.Release(ctx, []store.Held{{Name: "job"}}); return err },
		"close":   func() error { return s.CloseSession(ctx, long) },
		"watch": func() error {
			for _, err := range s.Watch(ctx, store.Scope{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for i := range 2 * readerCount {
		calls[fmt.Sprint("read ", i)] = func() error {
			for _, err := range s.List(ctx, store.Query{Session: sess.ID}) {
				return err
			}
			return nil
		}
	}
	type end struct {
		name string
		err  error
	}
	ends := make(chan end, len(calls))
	for name, call := range calls {
		go func() { ends <- end{name, call()} }()
	}
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, ends, "they wait")
	closing(t, s)
	for range calls {
		e := <-ends
		wasClosed(t, e.name, e.err)
	}
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	again := openAt(t, s.Path())
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1, "nothing of them was applied")
}

// Calls that have begun to write or read when Close comes are completed; those that wait for
// them are ended.
func TestCloseCompletesWhatHasBegun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	goOn, began := make(chan struct{}), make(chan bool, readerCount+1)
	begun, waiting, closed := make(chan error, readerCount+1), make(chan error, 2), make(chan error, 1)
	go func() {
		begun <- s.write(ctx, "test", true, func(t *tx) error {
			began <- true
			<-goOn
			_, err := t.claim(session{Session: sess}, claim{put: put{name: "job", nonce: 1}})
			return err
		})
	}()
	for range readerCount {
		go func() {
			_, err := s.read(ctx, "test", func(*view) ([]row, error) { began <- true; <-goOn; return nil, nil })
			begun <- err
		}()
	}
	for range readerCount + 1 {
		<-began
	}
	go func() { _, err := s.Renew(ctx, []store.Session{sess}); waiting <- err }()
	go func() { _, err := s.Get(ctx, "job"); waiting <- err }()
	time.Sleep(50 * time.Millisecond)
	go func() { closed <- s.Close() }()
	for range 2 {
		select {
		case err := <-waiting:
			wasClosed(t, "waiting", err)
		case <-time.After(soon):
			close(goOn)
			require.Fail(t, "what waits for other calls is not ended")
		}
	}
	require.Empty(t, closed, "it waits for what is under way")
	close(goOn)
	for range readerCount + 1 {
		require.NoError(t, <-begun)
	}
	require.NoError(t, <-closed)
	found := must(openAt(t, s.Path()).Get(ctx, "job"))(t)
	require.Len(t, found, 1)
}

// A context that ended before the Store did is what the caller is told of.
func TestACallerThatLeftBeforeClose(t *testing.T) {
	t.Parallel()
	s := openAt(t, quickFile(t))
	connection(t, s.Path(), "BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.OpenSession(ctx, store.Session{ID: 1, Owner: owner("a"), TTL: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, errClosed)
	closing(t, s)
}

// What was decided for a caller that left meanwhile is not applied.
func TestACallerThatLeftInATransaction(t *testing.T) {
	t.Parallel()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	applied := make(chan error, 1)
	err := s.write(ctx, "test", false, func(t *tx) error {
		_, err := t.claim(session{Session: sess}, claim{put: put{name: "job", nonce: 1}})
		applied <- err
		cancel()
		return err
	})
	require.NoError(t, <-applied)
	require.ErrorIs(t, err, context.Canceled)
	found := must(s.Get(t.Context(), "job"))(t)
	require.Empty(t, found)
}
