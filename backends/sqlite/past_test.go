//go:build linux

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

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
	other := openAt(t, s.Path())
	sess := open(t, s, 1, owner("a"), time.Minute)
	dead := open(t, s, 2, owner("b"), time.Minute)
	connection(t, s.Path(), runOut(dead))
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
	c := connection(t, s.Path(), runOut(sess), "BEGIN IMMEDIATE")

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
		case strings.Contains(err.Error(), "wait for the write lock"):
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

// Reads that find no connection free say so.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	goOn := make(chan struct{})
	began, ends := make(chan bool, readerCount), make(chan error, readerCount)
	for range readerCount {
		go func() {
			_, err := s.read(ctx, "test", func(*view) ([]row, error) { began <- true; <-goOn; return nil, nil })
			ends <- err
		}()
	}
	for range readerCount {
		<-began
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := s.Get(brief, "job")
	close(goOn)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "other reads")
	for range readerCount {
		require.NoError(t, <-ends)
	}
	must(s.Get(ctx, "job"))(t)
}

// A moment whose past is final serves the reads that ask for none later, and no other: what has ended
// since would be told as held.
func TestAPastIsSharedByThoseWhoWaited(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var now atomic.Int64
	s, err := newStore(ctx, quickFile(t), clock{boot: "boot", now: func() time.Duration { return time.Duration(now.Load()) }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var all []store.Session
	for i := range 5 {
		sess := open(t, s, store.SessionID(i+1), owner("a"), time.Duration(i+1)*time.Second)
		win(t, s, sess, fmt.Sprint("job/", i))
		all = append(all, sess)
	}
	for i, sess := range all {
		now.Store(int64(sess.TTL))
		for name, read := range reads(s, fmt.Sprint("job/", i), sess) {
			stands, _ := read(ctx)
			require.False(t, stands, "%s %d", name, i)
		}
		found := must(s.Get(ctx, "job/0", "job/1", "job/2", "job/3", "job/4"))(t)
		require.Len(t, found, len(all)-1-i)
	}
	at := s.clock.now()
	must(s.passed(ctx, at))(t)
	connection(t, s.Path(), "BEGIN IMMEDIATE") // from now on nobody gets the lock
	shared := must(s.passed(ctx, at))(t)
	require.Equal(t, at, shared)
	require.Eventually(t, func() bool {
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err = s.passed(brief, at+1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return busy(err) // unless it was too late to ask for the lock
	}, soon, time.Millisecond)
}
