package coordinator

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// Env is what a Coordinator has of the node it runs on: what it knows, how it acts, and what
// it was set. All of it may be used from any goroutine.
type Env struct {
	Table   *directory.Table
	Members func() membership.Snapshot
	Clock   lease.Clock
	// Send sends to the Region at an address. It does not block.
	Send func(address string, msg any)
	// Emit tells what became of the Coordinator under a token.
	Emit func(What, lease.Token, error)
	// Agree returns when all that live agree on the number of shards: those that live may be
	// moved. After an error, of either, it is called again in a second.
	Agree func(context.Context) error
	// Arrange returns when what is remembered is where that number wants it: shards that are
	// free may be assigned. It calls moving before it takes leases of shards for that.
	Arrange func(ctx context.Context, moving func()) error
	// Go runs what the node waits for when it ends.
	Go func(func())
	// Present holds the Coordinator that is in charge here, if one is.
	Present *atomic.Pointer[Coordinator]
	// Asked is set while the strategy of this node is asked: it may outlive a Coordinator.
	Asked *atomic.Bool
	Log   *zap.Logger

	Type   string // its key: directory.Names
	Shards int
	Self   *wire.Node
	Settings
}

// Settings are what users say of coordinating.
type Settings struct {
	Strategy placement.Strategy
	Limits   placement.MoveLimits // complete
	// Settle is how long hosts must be the same before shards that live are moved, and Stop
	// how long entities have to stop.
	Settle, Stop time.Duration
}

// What a Coordinator has to tell.
type What uint8

const (
	Began          What = iota // it is in charge
	Unprepared                 // Agree failed, or Arrange: no free shard is assigned
	StrategyFailed             // told once for each time that the strategy begins to fail
)
