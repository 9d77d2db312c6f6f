//go:build linux

package sqlite

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

func TestTimeNamespaces(t *testing.T) {
	const other = "time:[4026532999]"
	for name, c := range map[string]struct {
		own, children, offsets string
		ok                     bool
	}{
		"the machine's":                     {machineTime, machineTime, "", true},
		"the machine's, not the children's": {machineTime, other, "boottime 5 0\n", true},
		"a kernel without":                  {"", "", "", true},
		"its own, not shifted":              {other, other, "monotonic           7         0\nboottime            0         0\n", true},
		"its own, shifted":                  {other, other, "monotonic           0         0\nboottime            7         0\n", false},
		"shifted by nanoseconds":            {other, other, "boottime            0         1\n", false},
		"its own, offsets hidden":           {other, other, "", false},
		"the offsets of another":            {other, machineTime, "boottime            0         0\n", false},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(dir+"/ns", 0o700))
		for link, to := range map[string]string{"time": c.own, "time_for_children": c.children} {
			if to != "" {
				require.NoError(t, os.Symlink(to, dir+"/ns/"+link))
			}
		}
		if c.offsets != "" {
			require.NoError(t, os.WriteFile(dir+"/timens_offsets", []byte(c.offsets), 0o600))
		}
		err := sharedTime(dir)
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		if !c.ok {
			require.ErrorIs(t, err, store.ErrUnsupported, name)
		}
	}
	require.ErrorIs(t, sharedTime(t.TempDir()), store.ErrUnsupported, "no /proc")
}
