package cases

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecorder(t *testing.T) {
	var order []string
	r := Record(t, "case", func(tb TB) {
		tb.Cleanup(func() { order = append(order, "first") })
		tb.Cleanup(func() { order = append(order, "second"); tb.FailNow() })
		tb.Logf("a log")
		tb.Errorf("an error")
		tb.Fatalf("the %s", "end")
		order = append(order, "unreachable")
	})
	require.Equal(t, []string{"second", "first"}, order)
	require.Equal(t, []string{"an error", "the end"}, r.Failures())
	require.True(t, r.Failed())
	require.Equal(t, "case", r.Name())

	panicked := Record(t, "case", func(TB) { panic("at the disco") }).Failures()
	require.Len(t, panicked, 1)
	require.Contains(t, panicked[0], "panic: at the disco")

	into := Record(t, "case", func(tb TB) { r.Replay(tb) })
	require.Equal(t, r.lines, into.lines)
	require.False(t, Record(t, "case", func(tb TB) { Record(tb, "inner", func(TB) {}).Replay(tb) }).Failed())
}
