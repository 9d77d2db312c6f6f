//go:build unix

package postgrestest

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// What a failure shows of a log: enough for its reader, and not so much that it buries the failure.
const (
	tailLines = 20
	tailWidth = 240
)

func (g *group) showLogs(tb testing.TB) {
	tb.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.servers {
		tb.Logf("postgrestest: the last warnings of %s:\n%s", s.name, s.proc.LogEnd())
	}
	for _, b := range g.bouncers {
		tb.Logf("postgrestest: the last lines of %s:\n%s", b.name, b.proc.LogEnd())
	}
}

// tail is the end of a log, without statements.
func tail(log string) string {
	lines := slices.DeleteFunc(servertest.Lines(log, tailWidth), func(line string) bool { return strings.Contains(line, "STATEMENT: ") })
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
