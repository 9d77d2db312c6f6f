//go:build linux

package scheduler

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// happening tells what a report is about.
type happening string

const (
	didListen happening = "listens" // Text is the address
	didPass   happening = "pass"    // a message passed the gate
	didWrite  happening = "write"   // an attempt to write, with its outcome
	isHolding happening = "holding" // in the middle of a job, told to stay there
	didLose   happening = "lost"    // the lease; Text says it all
	anything  happening = "event"   // Text
)

// report is one line of a node's own journal.
type report struct {
	At       time.Duration `json:"at"` // nanoseconds, by the machine's monotonic clock
	What     happening     `json:"what"`
	Token    lease.Token   `json:"token,omitempty"`
	Kind     entryKind     `json:"kind,omitempty"`
	Number   int           `json:"number,omitempty"`
	Outcome  stage.Outcome `json:"outcome,omitempty"`
	Revision int64         `json:"revision,omitempty"` // etcd's, when it answered
	Text     string        `json:"text,omitempty"`
}

// tellTicks is how many ticks people are told of at once.
const tellTicks = 20

// plainReports returns a function that tells people what they want to know.
func plainReports(node string, t *stage.Timeline) func(report) {
	return func(r report) {
		switch {
		case r.What == didListen:
			t.Say(node, "listens on %s", r.Text)
		case r.What == isHolding:
			t.Say(node, "stays in the middle of job %d", r.Number)
		case r.Text != "":
			t.Say(node, "%s", r.Text)
		case r.What == didWrite && r.Kind == began && r.Outcome == stage.Written:
			t.Say(node, "has begun, at revision %d", r.Revision)
		case r.What == didWrite && r.Kind == ticked && r.Number%tellTicks == 0 && r.Outcome == stage.Written:
			t.Say(node, "has ticked to %d", r.Number)
		case r.What == didWrite && r.Kind == worked && r.Outcome == stage.Written:
			t.Say(node, "has done job %d", r.Number)
		}
	}
}

// String implements fmt.Stringer.
func (k entryKind) String() string {
	switch k {
	case began:
		return "begin"
	case ticked:
		return "tick"
	case worked:
		return "job"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k entryKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *entryKind) UnmarshalText(text []byte) error {
	return stage.Parse(k, text, began, ticked, worked)
}
