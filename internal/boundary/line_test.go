package boundary_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

func TestALineComesInABurstThenOnceASecond(t *testing.T) {
	var l boundary.Line
	written, told := 0, 0
	for i := range 10_000 {
		missed, ok := l.Open(time.Hour + time.Duration(i)*time.Millisecond)
		if ok {
			written++
			told += missed + 1
		}
	}
	require.Equal(t, boundary.Burst+9, written)
	missed, ok := l.Open(2 * time.Hour)
	require.True(t, ok)
	require.Equal(t, 10_000, told+missed, "none is lost without being told")
	for range boundary.Burst - 1 {
		_, ok = l.Open(2 * time.Hour)
		require.True(t, ok)
	}
	_, ok = l.Open(2 * time.Hour)
	require.False(t, ok)
}

func TestALongTextIsCut(t *testing.T) {
	require.Equal(t, "short", boundary.Cut("short"))
	require.Less(t, len(boundary.Cut(strings.Repeat("x", 1<<20))), 160)
}
