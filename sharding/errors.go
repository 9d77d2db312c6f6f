package sharding

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/agree"
)

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
