package main

import (
	"encoding/json"
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
	didPass   happening = "pass"    // a message passed the gate of an account
	didWrite  happening = "write"   // an attempt to write, with its outcome
	anything  happening = "event"   // Text
)

// report is one line of a node's own journal.
type report struct {
	At       time.Duration `json:"at"` // nanoseconds, by the machine's monotonic clock
	What     happening     `json:"what"`
	Shard    string        `json:"shard,omitempty"` // pass
	Token    lease.Token   `json:"token,omitempty"` // pass
	Entry    *entry        `json:"entry,omitempty"`
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

// plainReports returns a function that tells people what they want to know.
func plainReports(node string, t *timeline) func(report) {
	return func(r report) {
		switch {
		case r.What == didListen:
			t.say(node, "listens on %s", r.Text)
		case r.Text != "":
			t.say(node, "%s", r.Text)
		case r.What == didWrite && r.Entry.Kind == posted && r.Entry.Outcome == written:
			t.say(node, "%s: %+d (%s), balance %d", r.Entry.Account, r.Entry.Amount, r.Entry.ID, r.Entry.Balance)
		}
	}
}
