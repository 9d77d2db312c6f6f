//go:build linux

package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// A read that has met a session that is over, however long it takes, keeps nobody from writing:
// neither does a process that is stopped in it.
func TestAReadKeepsNobodyFromWriting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	other := openAt(t, s.Path())
	sess := open(t, s, 1, owner("a"), time.Minute)
	dead := open(t, s, 2, owner("b"), time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	finals := 0
	var renewed error
	var grants []lease.Grant
	_, err := s.read(ctx, "test", func(v *view) ([]row, error) {
		if !v.final {
			v.over = true // as if it had met dead's lease
			return nil, nil
		}
		finals++
		brief, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		grants, renewed = other.Renew(brief, []lease.Session{sess, dead})
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, finals)
	require.NoError(t, renewed, "a renewal waits for a read")
	require.NoError(t, grants[0].Err)
	require.ErrorIs(t, grants[1].Err, lease.ErrSessionGone)
}

// What makes the past final: each clock that decides what is over, a writer's and that of a final
// read, is read while no other can write, and lies before no writer's that has committed.
func TestTheClockIsReadUnderTheWriteLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, err := machineClock()
	require.NoError(t, err)
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
