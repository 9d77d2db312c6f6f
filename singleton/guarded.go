package singleton

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
)

// Guarded is what an actor that obeys a lease knows of the lease. The zero Guarded, which Of
// returns for other actors, is that of a lease that is not held (lease.ErrNotHeld). It is a
// lease.Ownership, and safe for concurrent use.
type Guarded struct{ g *gate.Gate }

// ended is the context of what does not run.
var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lease.ErrNotHeld)
	return ctx
}()

// Of returns the lease that the actor of ctx works under; ok is false if the actor is neither
// a singleton's child nor was spawned with Guard. Call it from the actor's own goroutine;
// the result may be kept and used from anywhere.
func Of(ctx actor.Context) (g Guarded, ok bool) {
	gt, ok := gate.Of(ctx)
	return Guarded{gt}, ok
}

// Context is done when the lease is lost, the manager closes the gate or the
// actor has ended; context.Cause says why. Pass it to everything that blocks.
func (g Guarded) Context() context.Context {
	if g.g == nil {
		return ended
	}
	return g.g.Context()
}

// Name is the lease's name.
func (g Guarded) Name() string {
	if g.g == nil {
		return ""
	}
	return g.g.Name()
}

// Token is the fencing token: pass it to every resource that can check one.
func (g Guarded) Token() lease.Token {
	if g.g == nil {
		return 0
	}
	return g.g.Token()
}

// CheckAlive reports whether work may go on at this moment. A long handler asks
// before each step.
func (g Guarded) CheckAlive() bool { return g.g != nil && g.g.CheckAlive() }

// Guard returns a copy of p for a child of the guarded actor: nothing is
// processed by it once the lease is lost. A mailbox of p is replaced. Under no lease,
// an actor that ends at once takes the place of the child. nil if p is.
func (g Guarded) Guard(p *actor.Props) *actor.Props {
	switch {
	case p == nil:
		return nil
	case g.g == nil:
		return p.Clone(actor.WithFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				ctx.Stop(ctx.Self())
			}
		}))
	}
	return g.g.Guard(p)
}
