//go:build unix

package postgrestest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// What a failure shows of a log: enough for its reader, and not so much that it buries the failure.
const (
	tailLines = 20
	tailWidth = 240
)

func (g *group) all() (programs []*servertest.Program) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.servers {
		programs = append(programs, &s.proc)
	}
	for _, b := range g.bouncers {
		programs = append(programs, &b.proc)
	}
	return programs
}

// tail is the end of a log, without statements.
func tail(log string) string {
	lines := slices.DeleteFunc(servertest.Lines(log, tailWidth), func(line string) bool { return strings.Contains(line, "STATEMENT: ") })
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
