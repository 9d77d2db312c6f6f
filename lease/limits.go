package lease

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// This file holds what is asked of a Keeper, and of its store, against their bounds.

// errUnmade is what a Keeper answers that NewKeeper did not make.
var errUnmade = fmt.Errorf("keeper: %w: the zero value, must come from lease.NewKeeper", ErrInvalid)

// check is the beginning of the calls that a user may make of a zero Keeper, or with
// no context.
func (k *Keeper) check(ctx context.Context) error {
	if k.store == nil {
		return errUnmade
	}
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	return nil
}

// checkLimits returns an error that is ErrInvalid if no store has such limits.
func checkLimits(l store.Limits) error {
	bad := func(field string, got any, bound string) error {
		return fmt.Errorf("store.Limits.%s: %w: %v, must be %s (store %s)", field, ErrInvalid, got, bound, l.Name)
	}
	switch {
	case l.MinTTL < 0 || l.MinTTL > longest:
		return bad("MinTTL", l.MinTTL, fmt.Sprintf("at least 0 and at most %v", longest))
	case l.MaxTTL < 0:
		return bad("MaxTTL", l.MaxTTL, "at least 0 (0: no bound)")
	case l.MaxTTL > 0 && l.MaxTTL < max(MinTTL, l.MinTTL):
		return bad("MaxTTL", l.MaxTTL, fmt.Sprintf("at least %v, or 0 for no bound", max(MinTTL, l.MinTTL)))
	case l.Batch < 0:
		return bad("Batch", l.Batch, "at least 0 (0: no bound)")
	case l.MaxMetadata < 0:
		return bad("MaxMetadata", l.MaxMetadata, "at least 0 (0: no bound)")
	}
	return nil
}

// configure applies the options of a lease and checks them.
func (k *Keeper) configure(name string, opts []Option) (options, error) {
	if k.store == nil {
		return options{}, errUnmade
	}
	if err := k.limits.ValidateName(name); err != nil {
		return options{}, err
	}
	o := options{ttl: k.cfg.TTL}
	if err := input.Apply(&o, nil, ErrInvalid, opts); err != nil {
		return o, k.errorf(name, err)
	}
	if err := k.cfg.checkTTL("lease.WithTTL", o.ttl, k.limits, o.renewal); err != nil {
		return o, err
	}
	if err := cmp.Or(k.limits.ValidateMetadata(o.metadata), k.checkParent(name, o)); err != nil {
		return o, k.errorf(name, err)
	}
	return o, nil
}

// ttls returns the shortest and the longest TTL of a Keeper's session.
func ttls(l store.Limits) (least, most time.Duration) {
	least, most = max(MinTTL, l.MinTTL), longest
	if l.MaxTTL > 0 {
		most = min(most, l.MaxTTL)
	}
	return least, most
}
