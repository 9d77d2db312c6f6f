package membership

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// This file is about two lives of one ID at a time. The later one is the member. One
// that crashed is replaced so. One that lives objects, by the lease
// "objection/<group>/<id>/<incarnation of the later>", as long as it is superseded; the
// later one's Join waits for that for a moment, and fails.

// ErrIDInUse: another node of the group that lives has the same ID (lease.Config.ID).
var ErrIDInUse = errors.New("the ID is in use by another node of the group")

// rivalry is with a later life of this ID that is listed in place of this one.
type rivalry struct {
	with string // its incarnation; empty: there is none
	end  context.CancelFunc
}

// contestLocked begins to object to a rival, or ends that. A member that leaves makes room.
func (r *rivalry) contestLocked(b *base, rival Member, leaving bool) {
	if r.with == rival.Incarnation {
		return
	}
	r.with = rival.Incarnation
	if r.end != nil {
		r.end()
		r.end = nil
	}
	if r.with == "" {
		b.after = append(b.after, func() {
			b.log.Info("listed again, or no member any more: no later incarnation of this ID is in its place")
		})
		return
	}
	b.after = append(b.after, func() {
		b.log.Error("not listed any more: a later incarnation of this ID has joined", zap.Error(inUse(rival)), boundary.Do("stop one of them, or give each an ID of its own"))
	})
	if leaving || b.life.Err() != nil {
		return
	}
	var ctx context.Context
	ctx, r.end = context.WithCancel(b.life)
	b.holders.Go(func() { object(ctx, b, rival) })
}

func inUse(by Member) error {
	return fmt.Errorf("%q is %s at %q, too: %w", by.ID, by.Incarnation, by.Address, ErrIDInUse)
}

// object holds the lease that says that this life goes on.
func object(ctx context.Context, b *base, rival Member) {
	name, err := b.names.objection(rival.Owner())
	if err != nil {
		return // its own member lease has a longer one
	}
	h, err := b.keeper.Lease(name, b.leaseOptions(nil)...)
	if err != nil {
		b.log.Warn("no objection can be made", zap.Error(err))
		return
	}
	b.hold(ctx, h, turns{})
	_ = h.Close(context.Background()) // bounded by the lease's own bounds
}
