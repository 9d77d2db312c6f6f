package inquiry

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/journal"
)

// Request is what a node is asked.
type Request struct {
	// Boot and After are those of the asker's last Report of this node: the answer has later events. From
	// bounds how far they reach back.
	Boot  string    `json:",omitempty"`
	After uint64    `json:",omitempty"`
	From  time.Time `json:",omitzero"`
	Do    *Action   `json:",omitempty"`
}

// Action is what a node is asked to do.
type Action struct {
	Action string // drain, undrain, move, release
	Name   string `json:",omitempty"` // the lease's
	To     string `json:",omitempty"` // a node's id
	User   string `json:",omitempty"`
	Of     string `json:",omitempty"` // if given: the incarnation that is meant; an address may be another's by now
}

// The codes of a refused Action.
const (
	Forbidden = "forbidden"
	Unknown   = "unknown"
	Conflict  = "conflict"
)

// Report is how a node stands.
type Report struct {
	At          time.Time // by its clock
	Incarnation string
	Group       string `json:",omitempty"`
	Version     string `json:",omitempty"`
	Go          string
	Started     time.Time
	Stopping    bool `json:",omitempty"`
	Draining    bool `json:",omitempty"`

	Sessions    []Session
	Waiting     []string `json:",omitempty"` // names of leases that it waits for
	P50, P99    time.Duration
	Attempt     time.Duration
	Failed      int               `json:",omitempty"` // requests to renew, in the last minute
	Unreached   map[string]string `json:",omitempty"`
	DeadLetters map[string]int64  `json:",omitempty"`
	Unhealthy   []string          `json:",omitempty"`

	Boot    string
	Last    uint64  // the number of the last event
	Missing bool    `json:",omitempty"` // events that the asker does not have are lost
	Events  []Event `json:",omitempty"`

	Singletons []Singleton `json:",omitempty"`
	Types      []Type      `json:",omitempty"`
	Partitions []Type      `json:",omitempty"`

	Code string `json:",omitempty"` // why the Action was refused; empty: it was begun
	Said string `json:",omitempty"` // what was begun, or why not
}

// Session is one with the store.
type Session struct {
	ID      string // 16 hexadecimal digits
	Leases  int
	TTL     time.Duration
	Trusted time.Duration
	Failed  int    `json:",omitempty"`
	Error   string `json:",omitempty"`
}

// Event is one of the node's journal.
type Event struct {
	journal.Event
	Reason string `json:",omitempty"` // what its Why says
}

// Singleton is the node's part of a singleton.
type Singleton struct {
	Name, Lease string
	Phase       string
	Hosts       bool             // a child runs here, or may
	Started     time.Time        `json:",omitzero"` // the child
	Stopping    time.Time        `json:",omitzero"` // since when it was told to stop
	Trouble     string           `json:",omitempty"`
	Unwell      bool             `json:",omitempty"` // Trouble has lasted
	WhyNot      string           `json:",omitempty"` // why the node would not host it
	Buffered    int              `json:",omitempty"`
	Counters    map[string]int64 `json:",omitempty"`
}

// Type is the node's part in a sharded type, or in the partitions of a name.
type Type struct {
	Group, Type string
	Shards      int
	Draining    bool `json:",omitempty"`
	Entities    int
	Waiting     int
	Counters    map[string]int64 `json:",omitempty"`
	Holders     map[string]int   `json:",omitempty"` // shards of each node by the records here, by incarnation
	Own         []Shard          `json:",omitempty"` // that are, or may be, this node's; of partitions those that are not just active, and some without an owner
	Moves       []Move           `json:",omitempty"` // under way, where it coordinates
}

// Shard is one that is, or may be, a node's.
type Shard struct {
	N        int
	Phase    string
	Entities int       `json:",omitempty"`
	Waiting  int       `json:",omitempty"`
	Key      string    `json:",omitempty"` // of a partition
	Stopping time.Time `json:",omitzero"`  // since when its Own should have returned
	Failures int       `json:",omitempty"` // in a row
	Error    string    `json:",omitempty"` // the last
}

// Move is a move of a shard.
type Move struct {
	Shard    int
	From, To string // ids
	Since    time.Time
}
