//go:build linux && !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShortRestore(t *testing.T) {
	if os.Getenv("HOLDFAST_SKIP_ETCD") == "1" {
		fmt.Fprintf(os.Stderr, "etcd skipped (HOLDFAST_SKIP_ETCD is set): %s\n", t.Name())
		t.Skip("etcd skipped (HOLDFAST_SKIP_ETCD is set)")
	}
	t.Parallel() // it waits, mostly
	var out bytes.Buffer
	r := &report{out: &out}
	require.NoError(t, restoreCheck(t.Context(), []string{"-nodes", "2", "-n", "3", "-ttl", "2s"}, r), "%s", &out)
	require.Equal(t, 13, r.kept+r.broken, "%s", &out)
	for line := range strings.Lines(out.String()) {
		// What takes how long is not for a machine that does other things, too.
		if !strings.HasSuffix(line, " s\n") {
			require.False(t, strings.HasPrefix(line, "BROKEN"), "%s", &out)
		}
	}
}
