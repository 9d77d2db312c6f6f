package faultclock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store/faultclock"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := faultclock.New()
		start := c.Now()
		elapsed := func() (mono, wall time.Duration) {
			r := c.Now()
			return r.Mono - start.Mono, time.Duration(r.Wall - start.Wall)
		}
		expect := func(mono, wall time.Duration) {
			t.Helper()
			m, w := elapsed()
			require.Equal(t, mono, m, "monotonic")
			require.Equal(t, wall, w, "wall")
		}
		var fired atomic.Int32
		after := func(d time.Duration) { c.AfterFunc(d, func() { fired.Add(1) }) }

		time.Sleep(time.Second)
		expect(time.Second, time.Second)

		c.SetRate(0.5)
		after(time.Second)
		time.Sleep(2*time.Second - 1)
		require.Zero(t, fired.Load(), "a timer runs at the clock's own rate")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.EqualValues(t, 1, fired.Load())
		expect(2*time.Second, 2*time.Second)

		c.SetRate(1)
		c.Freeze()
		after(time.Second)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 1, fired.Load(), "no timer fires while frozen")
		expect(5*time.Second, 5*time.Second)
		c.Thaw()
		synctest.Wait()
		require.EqualValues(t, 2, fired.Load())

		c.Sleep()
		after(time.Second)
		time.Sleep(3 * time.Second)
		expect(5*time.Second, 8*time.Second)
		c.Wake()
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, fired.Load(), "a sleeping machine's timer waits for its own time")
		expect(6*time.Second, 9*time.Second)

		c.StepWall(-time.Minute)
		expect(6*time.Second, 9*time.Second-time.Minute)

		stopped := c.AfterFunc(time.Second, func() { fired.Add(1) })
		require.True(t, stopped.Stop())
		require.False(t, stopped.Stop())
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, fired.Load())
	})
}
