package sharding

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/lease"
)

// EventKind tells what an Event says.
type EventKind uint8

const (
	// Hosted: entities of Shard may run on this node, under Token.
	Hosted EventKind = iota + 1
	// HandedOff: the shard was transferred to Peer, After that time from the moment
	// its entities were told to stop.
	HandedOff
	// Released: the shard was given up with no entity running under it.
	Released
	// Lost: the shard's lease, or this node's right to host, was lost for Reason;
	// the entities were told to stop.
	Lost
	// NotStopping: entities were told to stop and still run, After that time. The
	// shard is not given up before they ended. Told at growing intervals. With an ID
	// that one alone was to be passivated; told once.
	NotStopping
	// Yielded: the shard was given up though entities still run (WithOverdue).
	Yielded
	// EntityCrashed: the entity ID panicked with Panic.
	EntityCrashed
	// ColdStart: the entity ID was to hand its state over, or to be given it, and
	// that failed for Reason. Without an ID it says of States entities that theirs did
	// not come, or that no node took the shard over when it was given up; 0 if it is not
	// known how many there were, as the old host was lost before the first came.
	ColdStart
	// OrderNotKept: a move took so long that mail went on without knowing that what
	// was sent before it had arrived.
	OrderNotKept
	// Coordinating: this node's coordinator is in charge, under Token.
	Coordinating
	// CountMismatch: the coordinator does nothing, as Reason says that nodes differ
	// on the number of shards.
	CountMismatch
	// NotRemembered: the store of remembered entities failed for Reason, and is tried
	// again; or it has ids for Shard that are of other shards, or no ids
	// (lease.ErrInvalid), which are not started.
	NotRemembered
	// StrategyFailed: the Strategy panicked, gave no usable answer, or gave none within
	// 2 s, as Reason says. Until it does, shards that no node holds, and those of hosts
	// that leave, are spread evenly, and no other is moved. Told once by a coordinator
	// each time that this begins.
	StrategyFailed
	// Superseded: a later life of this node's ID is a member in its place
	// (membership.ErrIDInUse); all shards here are given up, for Reason, until that has
	// left.
	Superseded
)

var eventNames = [...]string{"", "hosted", "handed off", "released", "lost", "not stopping", "yielded",
	"entity crashed", "cold start",
	"order not kept", "coordinating", "count mismatch", "not remembered", "strategy failed", "superseded"}

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Event is published on the actor system's EventStream, as a value, on this node
// only. Nothing waits for subscribers. Of over 10 000 events that wait for one which is slow, the
// latest are dropped.
type Event struct {
	Kind  EventKind
	Group string
	Type  string
	// Shard is -1 where the event is not about one.
	Shard  int
	Token  lease.Token
	ID     string
	Reason error
	Panic  any
	After  time.Duration
	Peer   lease.Owner
	// States is how many states a ColdStart is about.
	States int
}

// ErrNameInUse: this actor system has started the type already.
var ErrNameInUse = errors.New("sharding type in use on this actor system")

var (
	// ErrClosed: the Region was stopped.
	ErrClosed = errors.New("region closed")
	// ErrUndrained: Undrain was called before the node held nothing.
	ErrUndrained = errors.New("draining was called off")
)

// ErrNotHosting: the node lost its membership in the group, or its part in the type. It is in the
// reason of the Lost events of its shards, with lease.ErrParentLost, which alone is the cause of
// their entities' contexts.
var ErrNotHosting = errors.New("the node may not host any more")

// ErrOverdue is the cause of an entity's context that did not stop by its deadline
// (WithStop).
var ErrOverdue = errors.New("the entity did not stop in time")

// ErrStaleOwner: the shard has, or had, a newer owner than the caller.
var ErrStaleOwner = errors.New("not the owner of the shard any more")

// ErrShardCount: other nodes run the type with another number of shards.
var ErrShardCount = errors.New("another number of shards is in use")

// ErrProtocol: a node that takes part is of a version that this one does not talk to.
var ErrProtocol = agree.ErrProtocol
