//go:build linux

package nodes

import (
	"context"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// Store is a kind of store that can be tortured. A program gives those it has to Main, in the same
// order in every process.
type Store struct {
	// Name is what -store says: "etcd".
	Name string
	// Start starts servers that this run alone uses, so many if the kind has members, in the process that
	// tortures. They must die with it, whatever ends it. Like Open and History it fails by
	// scene.Check.
	Start func(ctx context.Context, members int) Servers
	// Open makes a node's connection of a URL of Servers.URL, in the node's process. It waits for
	// no server: they may be down.
	Open func(ctx context.Context, url string) Client
}

// Servers are a store that runs for one torture, in the hands of the process that tortures.
type Servers interface {
	// String says what runs, for the report: "etcd with three members, no fsync".
	String() string
	// Addresses are where this process reaches the servers: "unix:///path" or "host:port". They
	// stay the same when a server is started again. Nodes get to them over networks that are cut.
	// None: nodes need no network, as for a file, and their ways to the store can't be cut.
	Addresses() []string
	// URL is what a node gives to Open that reaches the servers at these addresses instead, each
	// "host:port", in the order of Addresses.
	URL(addresses []string) string
	// Troubles are what can be done to the servers. One at a time is done.
	Troubles() []Trouble
	// History is all that was written since Start, by what the store itself keeps. All servers run
	// when it is asked, and nodes go on meanwhile: what they write then may be missing.
	History(ctx context.Context) History
	// Close ends the servers.
	Close() error
}

// Client is the store as one node has it. All of it is safe for concurrent use.
type Client struct {
	// Leases is the store of leases.
	Leases store.Store
	// Entities remembers accounts; nil: they are not remembered.
	Entities sharding.EntityStore
	// Write appends text to the fenced journal of name, on the condition that o still owns its
	// lease, as the store's guard has it: lease.ErrStale if it does not, and then nothing is
	// written. A nil o is no condition at all. After another error it is not known, now or later.
	Write func(ctx context.Context, o lease.Ownership, name int, text string) error
	// Read is the last text in the journal of name; empty if there is none.
	Read func(ctx context.Context, name int) (string, error)
	// Close ends the connections. Those of a node end with its process.
	Close func() error
}

// History is what was ever written.
type History struct {
	// Writes are all appends to the fenced journal that were applied, in any order.
	Writes []Write
	// Changes are all changes of records of leases, in any order. By them an overlap that the store
	// is to blame for is told from others: it ended a session that it had just confirmed. nil: the
	// store does not keep them, and is to blame for nothing; then every overlap is a violation.
	Changes []Change
}

// Write is one append to the fenced journal of a name.
type Write struct {
	Name     int
	Position int64 // grows from append to append of a name
	Text     string
}

// Change is one change of the record of a lease.
type Change struct {
	Lease   string
	Token   lease.Token // of the record that was written; of a deletion, one between that and the next
	Session uint64      // of the record; 0: it was deleted, or has expired
}
