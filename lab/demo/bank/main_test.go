//go:build linux

package bank

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsOutOfBoundsAreRefusedByName(t *testing.T) {
	for args, field := range map[string]string{
		"-ttl 1ms":                           "-ttl",
		"-duration 3s":                       "-duration",
		"now":                                "no arguments",
		"-etcd local -ttl 1s":                "-ttl",
		"-etcd local -ttl 2500ms":            "-ttl",
		"-etcd local -duration 3s":           "-duration",
		"-etcd http://127.0.0.1:1 -id=":      "-id",
		"-etcd http://127.0.0.1:1 -listen x": "-listen",
	} {
		var logs bytes.Buffer
		require.Equal(t, 2, Main(t.Context(), strings.Fields(args), strings.NewReader(""), &bytes.Buffer{}, &logs), args)
		require.Contains(t, logs.String(), strings.TrimPrefix(field, "no "), args)
	}
}

// inOrder requires that lines stand in the output, one after the other.
func inOrder(t *testing.T, out string, lines ...string) {
	t.Helper()
	last := -1
	for _, line := range lines {
		at := strings.Index(out[last+1:], line)
		require.GreaterOrEqual(t, at, 0, "%q in its place:\n%s", line, out)
		last += 1 + at
	}
}
