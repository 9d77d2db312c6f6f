//go:build linux

package bank

import (
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

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

// plainReports returns a function that tells people what they want to know.
func plainReports(node string, t *stage.Timeline) func(report) {
	return func(r report) {
		switch {
		case r.What == didListen:
			t.Say(node, "listens on %s", r.Text)
		case r.Text != "":
			t.Say(node, "%s", r.Text)
		case r.What == didWrite && r.Entry.Kind == posted && r.Entry.Outcome == stage.Written:
			t.Say(node, "%s: %+d (%s), balance %d", r.Entry.Account, r.Entry.Amount, r.Entry.ID, r.Entry.Balance)
		}
	}
}
