package pername

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/lease"
)

// Hints passes on those of a Backend that is a lease.Hinter.
func (p *store) Hints(ctx context.Context, prefix string) iter.Seq2[lease.Hint, error] {
	err := lease.ValidateContext(ctx)
	if err == nil && p.hinter != nil {
		return p.hinter.Hints(ctx, prefix)
	}
	if err == nil {
		err = lease.ErrUnsupported
	}
	return func(yield func(lease.Hint, error) bool) {
		yield(lease.Hint{}, fmt.Errorf("%s: hints: %w", p.limits.Name, err))
	}
}
