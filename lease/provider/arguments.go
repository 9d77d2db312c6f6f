package provider

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// span are the TTLs that may be asked for, both ends included.
type span struct{ least, most time.Duration }

// always holds whatever the store.
var always = span{time.Millisecond, 365 * 24 * time.Hour}

// arguments are those of one call.
type arguments struct {
	key    string
	owners []string // in whose name it is, and to whom it hands over
	ttl    time.Duration
	timed  bool // it has a TTL
}

// check returns the name of the key if the arguments make sense.
func (a arguments) check(ctx context.Context, ttls span) (name string, err error) {
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return "", err
	}
	if name, err = Name(a.key); err != nil {
		return "", err
	}
	for i, o := range a.owners {
		if err := checkOwner([]string{"owner", "to"}[i], o); err != nil {
			return "", err
		}
	}
	if a.timed && (a.ttl < ttls.least || a.ttl > ttls.most) {
		return "", fmt.Errorf("ttl: %w: %v, must be at least %v and at most %v", lease.ErrInvalid, a.ttl, ttls.least, ttls.most)
	}
	return name, nil
}

func checkOwner(field, owner string) error {
	switch {
	case owner == "":
		return fmt.Errorf("%s: %w: empty", field, lease.ErrInvalid)
	case len(owner) > maxOwner:
		return fmt.Errorf("%s %.32q…: %w: %d bytes, at most %d", field, owner, lease.ErrInvalid, len(owner), maxOwner)
	case !utf8.ValidString(owner):
		return fmt.Errorf("%s %q: %w: not UTF-8", field, owner, lease.ErrInvalid)
	}
	return nil
}

// heedLimits asks the store for its limits, and refuses those under which no call could succeed.
func (p *Provider) heedLimits() (err error) {
	defer boundary.Contain(&err)
	p.limits = p.store.Limits()
	l := &p.limits
	if l.Name == "" {
		l.Name = strings.TrimPrefix(fmt.Sprintf("%T", p.store), "*")
	}
	p.ttls = span{max(always.least, l.MinTTL), always.most}
	if l.MaxTTL > 0 {
		p.ttls.most = min(always.most, l.MaxTTL)
	}
	if l.MinTTL < 0 || l.MaxTTL < 0 || p.ttls.least > p.ttls.most {
		return fmt.Errorf("store.Limits: %w: MinTTL %v and MaxTTL %v, must leave a TTL of %v to %v (store %s)",
			lease.ErrInvalid, l.MinTTL, l.MaxTTL, always.least, always.most, l.Name)
	}
	room := store.Limits{Name: l.Name, MaxMetadata: l.MaxMetadata}
	longest := map[string]string{askedKey: (always.most - 1).String(), givingKey: toGive}
	return room.ValidateClaim(store.Claim{Name: "owned/k", Metadata: longest})
}
