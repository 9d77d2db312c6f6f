package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// nodeEnv marks a process as a node that another one started.
const nodeEnv = "HOLDFAST_EXAMPLE_NODE"

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
	Outcome  outcome       `json:"outcome,omitempty"`
	Revision int64         `json:"revision,omitempty"` // etcd's, when it answered
	Text     string        `json:"text,omitempty"`
}

// jsonReports returns a function that writes reports as lines of JSON, and each
// before it returns: what a node did before it was killed is then told. failed is
// called when nobody reads any more.
func jsonReports(w io.Writer, failed func(error)) func(report) {
	var mu sync.Mutex
	enc := json.NewEncoder(w)
	return func(r report) {
		mu.Lock()
		defer mu.Unlock()
		if err := enc.Encode(r); err != nil {
			failed(err)
		}
	}
}

// tellTicks is how many ticks people are told of at once.
const tellTicks = 20

// plainReports returns a function that tells people what they want to know.
func plainReports(node string, t *timeline) func(report) {
	return func(r report) {
		switch {
		case r.What == didListen:
			t.say(node, "listens on %s", r.Text)
		case r.What == isHolding:
			t.say(node, "stays in the middle of job %d", r.Number)
		case r.Text != "":
			t.say(node, "%s", r.Text)
		case r.What == didWrite && r.Kind == began && r.Outcome == written:
			t.say(node, "has begun, at revision %d", r.Revision)
		case r.What == didWrite && r.Kind == ticked && r.Number%tellTicks == 0 && r.Outcome == written:
			t.say(node, "has ticked to %d", r.Number)
		case r.What == didWrite && r.Kind == worked && r.Outcome == written:
			t.say(node, "has done job %d", r.Number)
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

// String implements fmt.Stringer.
func (o outcome) String() string {
	switch o {
	case written:
		return "written"
	case repeated:
		return "repeated"
	case refused:
		return "refused"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (k entryKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *entryKind) UnmarshalText(text []byte) error { return parse(k, text, began, ticked, worked) }

// MarshalText implements encoding.TextMarshaler.
func (o outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *outcome) UnmarshalText(text []byte) error {
	return parse(o, text, written, repeated, refused)
}

// parse finds the one of values that reads as text.
func parse[T fmt.Stringer](to *T, text []byte, values ...T) error {
	for _, v := range values {
		if v.String() == string(text) {
			*to = v
			return nil
		}
	}
	return fmt.Errorf("%w: %q, must be one of %v", lease.ErrInvalid, text, values)
}
