package membership

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := owner("a"), owner("b")
		s := NewStatic(a)
		var told []LeaderChanged
		stop := s.Follow(func(c LeaderChanged) { told = append(told, c) })
		for _, l := range []lease.Owner{a, a, b, {}} {
			synctest.Wait()
			s.Set(l)
		}
		synctest.Wait()
		require.Equal(t, []LeaderChanged{
			{},
			{Leader: a, IsSelf: true},
			{Leader: b, Previous: a},
			{Previous: b},
		}, told)
		stop()
		s.Set(a)
		synctest.Wait()
		require.Len(t, told, 4)
	})
}
