package singleton

import (
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
)

// EventKind tells what an Event says.
type EventKind uint8

const (
	// BecameHost: a child was started here under Token.
	BecameHost EventKind = iota + 1
	// Lost: the lease was lost under the child, for Reason; the child was told to stop.
	Lost
	// NotStopping: the child was told to stop and still runs, After that time. The lease
	// is not released before it ended (WithOverdue). Told at growing intervals.
	NotStopping
	// ChildEnded: the child is gone. Panic is what it panicked with, if so;
	// Overruns counts its handlers that were running when the lease was lost.
	ChildEnded
	// HandedOver: the lease was transferred to Peer, After that time from the
	// moment the child was told to stop.
	HandedOver
	// Released: the lease was given up with no child under it.
	Released
	// Yielded: the lease was given up though the child still runs (WithOverdue).
	Yielded
	// ColdStart: a child should have handed its state over, or been given it, and that
	// failed for Reason; or no node took over from a hosting.Stateful that was stopped.
	ColdStart
	// OrderNotKept: a move took so long that mail went to the new host before earlier mail
	// was known to have arrived.
	OrderNotKept
	// StartFailed: a child could not be made, or was given up while it was being made,
	// for Reason: the panic of its Props, ErrNotMade, or why the lease was lost.
	StartFailed
	// NotStarting: the child's Props were called that time After ago and have not
	// returned. Told at growing intervals.
	NotStarting
)

var eventNames = [...]string{"unknown", "became host", "lost", "not stopping", "child ended", "handed over", "released", "yielded", "cold start",
	"order not kept", "start failed", "not starting"}

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return eventNames[0]
}

// Event is published on the actor system's EventStream, as a value, on this node only. While
// subscribers hear of it, Manager.Status may be as it was before, or as it is later: the manager does
// not wait for them. Of over 10 000 events that wait for a subscriber which is slow, the latest are
// dropped.
//
// Fields that the kind does not mention are zero.
type Event struct {
	Kind      EventKind
	Singleton string      // its name
	Token     lease.Token // the fencing token of the term, if there was one
	Reason    error
	Panic     any
	Overruns  int
	After     time.Duration
	Peer      lease.Owner // the next host
}

func (c *controller) event(e Event) {
	e.Singleton = c.name
	c.outlet.Publish(e)
}

// try runs users' code. A panic is logged.
func (c *controller) try(what string, f func()) {
	if err := boundary.Contained(f); err != nil {
		c.log.Error(what+" failed", zap.Error(err))
	}
}
