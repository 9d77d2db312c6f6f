package lease_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestKeeperRefusesBadNames(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		for _, bad := range []string{"", "a//b", "\xff", strings.Repeat("x", 10<<10)} {
			_, err := a.Lease(bad)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		a.hold(strings.Repeat("é", store.MaxName/2))
	})
}

func TestNameEscapesSegments(t *testing.T) {
	for _, c := range []struct {
		segments []string
		want     string
	}{
		{[]string{"a"}, "kind/a"},
		{[]string{"a/b"}, "kind/a%2Fb"},
		{[]string{"a", "b"}, "kind/a/b"},
		{[]string{"a%2Fb"}, "kind/a%252Fb"},
		{[]string{"\x00\n\x7f"}, "kind/%00%0A%7F"},
		{[]string{"ключ"}, "kind/ключ"},
	} {
		got, err := lease.Name("kind", c.segments...)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, bad := range [][]string{{""}, {"a", ""}, {"\xff"}, {strings.Repeat("x", store.MaxName)}, {strings.Repeat("/", 200)}} {
		_, err := lease.Name("kind", bad...)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.Less(t, len(err.Error()), 400)
	}
}

// Different segments never make the same name, and the name is a valid one.
func FuzzNameIsInjective(f *testing.F) {
	f.Add("a/b", "c", "a", "b/c")
	f.Add("a%2Fb", "", "a/b", "")
	f.Add("%", "2F", "%2F", "")
	f.Add("\x00", "x", "%00", "x")
	f.Add("\xff", "x", "\xfe", "x")
	segments := func(a, b string) []string {
		if b == "" {
			return []string{a}
		}
		return []string{a, b}
	}
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		a, errA := lease.Name("kind", segments(a1, a2)...)
		b, errB := lease.Name("kind", segments(b1, b2)...)
		for name, err := range map[string]error{a: errA, b: errB} {
			if err == nil {
				require.NoError(t, store.ValidateName(name))
			} else {
				require.ErrorIs(t, err, lease.ErrInvalid)
			}
		}
		if errA == nil && errB == nil {
			require.Equal(t, a1 == b1 && a2 == b2, a == b, "%q and %q", a, b)
		}
	})
}
