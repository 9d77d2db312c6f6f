package singleton

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/meters"
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

// instruments are a node's metrics of its singletons, all of them together: one
// series each, however many singletons there are. They carry holdfast.node.
type instruments struct {
	hosted        meters.Counter
	buffered      meters.Counter
	dropped       meters.Counter
	undeliverable meters.Counter
	unconfirmed   meters.Counter
	relayed       meters.Counter
	unordered     meters.Counter
	overruns      meters.Counter
	restarts      meters.Counter
	hostless      meters.Times
	handOver      meters.Times
}

func newInstruments(mp metric.MeterProvider, node string) (*instruments, error) {
	m := meters.New(mp, "singleton", attribute.String("holdfast.node", node))
	i := &instruments{
		hosted:        m.UpDown("hosted", "Singletons whose child runs on this node."),
		buffered:      m.UpDown("buffered", "Messages that wait on this node for a host, or to be taken up by it."),
		dropped:       m.Counter("dropped", "Messages that found a buffer full, or were left when a manager ended."),
		undeliverable: m.Counter("undeliverable", "Messages that could not be encoded, decoded or routed."),
		unconfirmed:   m.Counter("unconfirmed", "Messages that are not known to have arrived when their link broke."),
		relayed:       m.Counter("relayed", "Messages that were forwarded for others, each kept until it was taken up."),
		unordered:     m.Counter("unordered", "Moves after which the order of messages was not guaranteed."),
		overruns:      m.Counter("overruns", "Handlers that were running when the lease was lost."),
		restarts:      m.Counter("restarts", "Children that ended by themselves."),
		hostless:      m.Times("hostless", "Time without a host that this node's messages could go to."),
		handOver: m.Times("handover",
			"Planned hand-overs, from the child being told to stop until the lease was transferred."),
	}
	return i, m.Err()
}

// tries is how many children in a row fail before their first message until another node is to try.
const tries = 3

// trouble is what stands between this node and the singleton, as far as this node knows.
// Errors of Ask say it.
type trouble struct {
	hostless time.Duration // since when mail can go nowhere; 0: it can
	store    string        // why the lease was not acquired at the last try
	broke    string        // the address of the host whose link broke last
	brokeAt  time.Duration

	futile  int    // children in a row that failed before their first message
	why     string // the last did
	trial   *gate.Gate
	resting bool
	started time.Duration // of the present child, if there is one

	// For Health, since when it lasts; 0: it does not.
	making    time.Duration // Props that make a child have not returned
	following time.Duration // nor has Follow of a source of leadership
	stopping  time.Duration // the child was told to stop
	waiting   time.Duration // there is no host, or none is known and mail waits for it
}

// hosts reports whether there is a child in p.
func (p Phase) hosts() bool {
	return slices.Contains([]Phase{Active, Inviting, HandingOver, Yielding, Stopping}, p)
}

// away reports whether the singleton is not hosted here in p. Where it is, that counts, whatever is
// known of the record.
func (p Phase) away() bool { return p <= Adopting || p == Releasing || p == Closed }

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
