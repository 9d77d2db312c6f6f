package hosting

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// FromEventStream is the source of leadership that a program publishes itself, as
// membership.LeaderChanged, a value, on the system's EventStream: Leader leads from then on. A node
// takes itself for the leader where IsSelf is set, or where Leader has the system's address and no
// Incarnation: each node publishes on its own EventStream, with its own IsSelf. A pointer to an event
// is not heeded, nor what Previous and Skipped say.
//
// It has no leader before the first event that is published after the first call for the system;
// later calls return the same source. It follows all that is published, by any Group too: a program
// that has several Groups follows the Leadership of one. nil if system is nil, which WithLeadership
// refuses. Safe for concurrent use.
func FromEventStream(system *actor.ActorSystem) membership.Leadership {
	if system == nil {
		return nil
	}
	return actors.Extension(system, streamID, func() *stream {
		s := &stream{}
		system.EventStream.Subscribe(func(e any) { // for the system's life
			c, ok := e.(membership.LeaderChanged)
			if !ok {
				return
			}
			c.IsSelf = c.IsSelf || c.Leader.Incarnation == "" && c.Leader.Address != "" && c.Leader.Address == system.Address()
			c.Previous, c.Skipped = lease.Owner{}, 0
			s.mu.Lock()
			defer s.mu.Unlock()
			if c != s.last {
				s.last = c
				s.feed.Set(c)
			}
		})
		return s
	})
}

// stream is what FromEventStream returns.
type stream struct {
	mu   sync.Mutex
	last membership.LeaderChanged
	feed feed.Latest[membership.LeaderChanged]
}

var streamID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*stream) ExtensionID() extensions.ExtensionID { return streamID }

// Follow implements membership.Leadership.
func (s *stream) Follow(f func(membership.LeaderChanged)) (stop func()) {
	return s.feed.Follow(func(previous, c membership.LeaderChanged, skipped int) {
		c.Previous, c.Skipped = previous.Leader, skipped
		f(c)
	})
}

// ToEventStream returns a function that publishes events on the system's EventStream, as values:
// those of a Group (membership.WithEvents), or of any source of leadership:
//
//	publish := hosting.ToEventStream(system)
//	leaders.Follow(func(c membership.LeaderChanged) { publish(c) }) // leaders: a *membership.Static
//
// It does not wait for subscribers: one goroutine of the system calls them, one event after the
// other. If they are too slow events are dropped, counted and logged, but the last LeaderChanged and
// MembersChanged of each group always arrive. A LeaderChanged that tells of no change is not
// published. nil if system is nil, which WithEvents refuses.
func ToEventStream(system *actor.ActorSystem) func(event any) {
	if system == nil {
		return nil
	}
	out, from := outlet.Of(system), new(byte)
	type key struct {
		from        *byte
		kind, group string
	}
	return func(event any) {
		switch e := event.(type) {
		case membership.LeaderChanged:
			if e.Leader != e.Previous || e.Skipped > 0 {
				out.Latest(key{from, "leader", e.Group}, e)
			}
		case membership.MembersChanged:
			out.Latest(key{from, "members", e.Now.Group}, e)
		default:
			out.Publish(e)
		}
	}
}
