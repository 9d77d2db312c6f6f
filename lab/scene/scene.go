// Package scene is what the laboratory's scenarios have in common: how one is described, what it is
// given, and what it reports.
package scene

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Scenario is something that is started, broken and judged; `go run -C lab . run NAME` runs it.
type Scenario struct {
	Name  string
	About string // in one line: what is started, what is broken, what must hold
	Do    func(ctx context.Context, r *Run) error
}

// Run is one run of a scenario.
type Run struct {
	Short bool          // the size of the commit tier: less than about ten seconds
	Seed  uint64        // of everything that is drawn
	For   time.Duration // how long load lasts; 0: as long as the scenario says
	Store string        // kind of store: etcd, postgres or sqlite; empty: the scenario's own
	Dir   string        // for data and journals
	Out   io.Writer

	mu         sync.Mutex
	violations []string
}

// Printf prints a line.
func (r *Run) Printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.Out, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// Figure prints what was measured.
func (r *Run) Figure(name, format string, args ...any) {
	r.Printf("%-44s %s", name, fmt.Sprintf(format, args...))
}

// Violation reports that what must hold did not. A run that has one fails.
func (r *Run) Violation(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.Printf("VIOLATION: %s", line)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, line)
}

// Violations returns the violations until now.
func (r *Run) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.violations...)
}
