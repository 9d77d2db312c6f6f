package sequencer

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

type ownershipKey struct{}

// NewContext returns a context that bears o, under which what it is passed to works. nil: nothing
// is borne. A nil ctx is context.Background.
func NewContext(ctx context.Context, o lease.Ownership) context.Context {
	if input.Nil(ctx) {
		ctx = context.Background()
	}
	return context.WithValue(ctx, ownershipKey{}, o)
}

// FromContext returns what NewContext was given last; ok is false if that was nothing.
func FromContext(ctx context.Context) (o lease.Ownership, ok bool) {
	if input.Nil(ctx) {
		return nil, false
	}
	o, _ = ctx.Value(ownershipKey{}).(lease.Ownership)
	return o, !input.Nil(o)
}
