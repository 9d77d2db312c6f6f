package actors_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/store"
)

// An owner may zero an Alarm whose timer has fired and not been taken yet, and set it again: what the
// former timer posted is not taken for the new one's.
func TestAnAlarmThatWasZeroed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posted := make(chan func(), 2)
		var a actors.Alarm
		rings := 0
		set := func(d time.Duration) {
			a.Set(store.SystemClock(), func(f func()) { posted <- f }, d, func() { rings++ })
		}
		set(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, posted, 1)
		stale := <-posted
		a = actors.Alarm{}
		set(time.Hour)
		stale()
		require.Zero(t, rings)
		require.True(t, a.Pending())
		time.Sleep(time.Hour)
		synctest.Wait()
		(<-posted)()
		require.Equal(t, 1, rings)
		require.False(t, a.Pending())
	})
}
