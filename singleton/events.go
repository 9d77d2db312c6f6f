package singleton

import (
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// EventKind tells what an Event says.
type EventKind uint8

const (
	// BecameHost: a child was started here under Token.
	BecameHost EventKind = iota + 1
	// Lost: the lease was lost under the child, for Reason; it was told to stop.
	Lost
	// NotStopping: the child was told to stop and still runs, After that time.
	// The lease is not released before it ended. Told at growing intervals.
	NotStopping
	// ChildEnded: the child is gone. Panic is what it panicked with, if so;
	// Overruns counts its handlers that were running when the lease was lost.
	ChildEnded
)

// Event is published on the actor system's EventStream, as a value, on this
// node only. Subscribers must not block.
type Event struct {
	Kind      EventKind
	Singleton string
	Token     lease.Token
	Reason    error
	Panic     any
	Overruns  int
	After     time.Duration
}

func (c *controller) event(e Event) {
	e.Singleton = c.name
	c.system.EventStream.Publish(e)
}
