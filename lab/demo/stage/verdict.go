//go:build linux

package stage

import (
	"fmt"
	"strings"
)

// Finding is one line of a verdict.
type Finding struct {
	What, Found string
	OK          bool
}

// NewFinding returns one.
func NewFinding(what, found string, ok bool) Finding { return Finding{what, found, ok} }

// Verdict is what was found of a run.
type Verdict struct {
	Width    int // of the column that says what it looked at
	Findings []Finding
}

// Good reports whether all is as it must be.
func (v Verdict) Good() bool { return len(v.Findings) > 0 && len(v.Failed()) == 0 }

// Failed returns what was not as it must be.
func (v Verdict) Failed() []string {
	var out []string
	for _, f := range v.Findings {
		if !f.OK {
			out = append(out, f.What)
		}
	}
	return out
}

// String is a table.
func (v Verdict) String() string {
	var b strings.Builder
	for _, f := range v.Findings {
		mark := "pass"
		if !f.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "  %s  %-*s %s\n", mark, v.Width, f.What, f.Found)
	}
	word := "GOOD"
	if !v.Good() {
		word = "BAD: " + strings.Join(v.Failed(), ", ")
	}
	fmt.Fprintf(&b, "  verdict: %s\n", word)
	return b.String()
}
