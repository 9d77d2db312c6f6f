package lease

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
)

// This file holds what is asked of a store against what the store says of itself.

// check returns an error that is ErrInvalid if no store has such limits.
func (l StoreLimits) check() error {
	bad := func(field string, got any, bound string) error {
		return fmt.Errorf("lease.StoreLimits.%s: %w: %v, must be %s (store %s)", field, ErrInvalid, got, bound, l.Name)
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
	if err := ValidateName(name); err != nil {
		return options{}, err
	}
	if k.store == nil {
		return options{}, errUnmade
	}
	if err := k.limits.checkName(name); err != nil {
		return options{}, err
	}
	o := options{ttl: k.cfg.TTL}
	if err := input.Apply(&o, nil, ErrInvalid, opts); err != nil {
		return o, k.errorf(name, err)
	}
	if err := k.cfg.checkTTL("lease.WithTTL", o.ttl, k.limits, o.renewal); err != nil {
		return o, err
	}
	if err := cmp.Or(validateMetadata(o.metadata), k.limits.checkMetadata(o.metadata), k.checkParent(name, o)); err != nil {
		return o, k.errorf(name, err)
	}
	return o, nil
}

// ttls returns the shortest and the longest TTL of a Keeper's session.
func (l StoreLimits) ttls() (least, most time.Duration) {
	least, most = max(MinTTL, l.MinTTL), longest
	if l.MaxTTL > 0 {
		most = min(most, l.MaxTTL)
	}
	return least, most
}

// checkName returns an error that is ErrInvalid if the store can't hold a name, which is
// valid.
func (l StoreLimits) checkName(name string) error {
	if l.CheckName == nil {
		return nil
	}
	_, err := contained(func() (struct{}, error) { return struct{}{}, l.CheckName(name) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fmt.Errorf("lease name %.64q: %w (a bound of store %s)", name, err, l.Name)
}

// checkMetadata returns an error that is ErrInvalid if the store can't hold the metadata of
// one record.
func (l StoreLimits) checkMetadata(m map[string]string) error {
	if size := metadataSize(m); l.MaxMetadata > 0 && size > l.MaxMetadata {
		return fmt.Errorf("metadata: %w: its keys and values have %d bytes, at most %d (a bound of store %s)",
			ErrInvalid, size, l.MaxMetadata, l.Name)
	}
	return nil
}

func metadataSize(m map[string]string) (size int) {
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}

// ValidateSession is ValidateSession with the longest TTL of l. A TTL below MinTTL is for
// the store to raise.
func (l StoreLimits) ValidateSession(s Session) error {
	if err := ValidateSession(s); err != nil {
		return err
	}
	if l.MaxTTL > 0 && s.TTL > l.MaxTTL {
		return fmt.Errorf("session %d: %w: TTL %v, must be at most %v (a bound of store %s)", s.ID, ErrInvalid, s.TTL, l.MaxTTL, l.Name)
	}
	return nil
}

// ValidateClaim is ValidateClaim with the names and the size of metadata that l allows. For
// a While of which l knows nothing the error is ErrUnsupported.
func (l StoreLimits) ValidateClaim(c Claim) error {
	if err := ValidateClaim(c); err != nil {
		return err
	}
	if err := l.checkName(c.Name); err != nil {
		return err
	}
	if err := l.checkMetadata(c.Metadata); err != nil {
		return fmt.Errorf("lease %q: %w", c.Name, err)
	}
	if c.While != (Held{}) && !l.While {
		return fmt.Errorf("lease %q: lease.Claim.While: %w (store %s)", c.Name, ErrUnsupported, l.Name)
	}
	return nil
}

// ValidateTransfer is ValidateTransfer with the size of metadata that l allows.
func (l StoreLimits) ValidateTransfer(m Transfer) error {
	if err := ValidateTransfer(m); err != nil {
		return err
	}
	if err := l.checkMetadata(m.Metadata); err != nil {
		return fmt.Errorf("lease %q: %w", m.Name, err)
	}
	return nil
}
