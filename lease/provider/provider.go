package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Provider takes leases by owners' names. Make one with New.
type Provider struct {
	store       store.Store
	limits      store.Limits
	least, most time.Duration // TTLs that may be asked for
}

// Result says what became of an Acquire.
type Result struct {
	// Acquired: the key is the owner's until Expires.
	Acquired bool
	// Owner is who has the key: the one that acquired it, or another. It is empty if the other is
	// no Provider's owner. It is the one that did not acquire it where that had the key until it ran
	// out, and a transaction guards it (package backends/postgres).
	Owner string
	// Token is the fencing token of the term. It stays while the same owner acquires again with the
	// same TTL, and grows else; 0 if another has the key.
	Token lease.Token
	// Expires is when the owner may not count on the key any more unless it is renewed: a tenth of the
	// TTL before that ends. Of another owner's it is an estimate of the end, and zero where the store
	// does not tell.
	Expires time.Time
}

// maxOwner is the longest name of an owner, in bytes.
const maxOwner = 256

// Metadata of the records.
const (
	askedKey  = "holdfast/asked"  // the TTL that was asked for: the store may have granted more
	givingKey = "holdfast/giving" // the record is marked, for one of these
	toGive    = "yes"             // it is being given up
	toChange  = "ttl"             // its TTL is being changed
)

// New returns a Provider over store. The error is lease.ErrInvalid: that is nil. A record's metadata
// are less than 64 bytes, for which store.Limits must leave room.
func New(store store.Store) (*Provider, error) {
	if input.Nil(store) {
		return nil, fmt.Errorf("provider.New: store: %w: nil", lease.ErrInvalid)
	}
	l := store.Limits()
	return &Provider{store, l, max(time.Millisecond, l.MinTTL), min(input.Longest, cmp.Or(l.MaxTTL, input.Longest))}, nil
}

// Name returns the name of the record of a key: "owned/" and the key, escaped as lease.Name does.
func Name(key string) (string, error) { return lease.Name("owned", key) }

// Acquire takes the key for owner, or renews it. Who has it with the same TTL keeps the token; with
// another TTL, or after a Release or Transfer that did not succeed, a new term begins. ttl is 1 ms at
// least and a year at most, and within the store's bounds (store.Limits); what is granted may be
// longer.
//
// That another has it is no error. Errors: lease.ErrInvalid; lease.ErrBadRecord; lease.ErrUnknown
// if the key may be the owner's now or later; others if it is not known and nothing was changed.
func (p *Provider) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (Result, error) {
	a := arguments{key: key, owners: []string{owner}, ttl: ttl, timed: true}
	return p.call(ctx, "acquire", a, func(c *call) (Result, error) { return c.acquire(ttl, true) })
}

// Renew extends what owner has: false if it does not have the key, or is giving it up. With another
// TTL than it had a new term begins. Errors are as of Acquire.
func (p *Provider) Renew(ctx context.Context, key, owner string, ttl time.Duration) (bool, error) {
	a := arguments{key: key, owners: []string{owner}, ttl: ttl, timed: true}
	r, err := p.call(ctx, "renew", a, func(c *call) (Result, error) { return c.acquire(ttl, false) })
	return r.Acquired, err
}

// Owner returns who has the key; empty if it is free, or held through something other than a Provider.
func (p *Provider) Owner(ctx context.Context, key string) (string, error) {
	r, err := p.call(ctx, "owner", arguments{key: key}, func(c *call) (Result, error) {
		r, stands, err := c.get()
		if err != nil || !stands {
			return Result{}, err
		}
		return c.held(r), nil
	})
	return r.Owner, err
}

// Release gives the key up. It does nothing if another has it, or none. Errors are as of Acquire;
// lease.ErrUnknown means that it is free now, or later, or when its TTL is over.
func (p *Provider) Release(ctx context.Context, key, owner string) error {
	a := arguments{key: key, owners: []string{owner}}
	_, err := p.call(ctx, "release", a, func(c *call) (Result, error) { return Result{}, c.release() })
	return err
}

// Transfer hands the key from one owner to another under a new token, for ttl from now: true if it
// is to's. It is false if from does not have it, and to neither. Errors are as of Acquire, and
// lease.ErrUnsupported if the store is no store.Transferrer.
func (p *Provider) Transfer(ctx context.Context, key, from, to string, ttl time.Duration) (bool, error) {
	a := arguments{key: key, owners: []string{from, to}, ttl: ttl, timed: true}
	r, err := p.call(ctx, "transfer", a, func(c *call) (Result, error) { return c.transfer(to, ttl) })
	return r.Acquired, err
}

// incarnation begins those of owners: no Keeper's does.
const incarnation = "owner:"

// of is the owner of that name, in whatever process.
func of(owner string) lease.Owner { return lease.Owner{ID: owner, Incarnation: incarnation + owner} }

// session is a new one.
func session(o lease.Owner, ttl time.Duration) store.Session {
	return store.Session{ID: store.SessionID(rand.Int64N(1<<63-1) + 1), Owner: o, TTL: ttl}
}

// arguments are those of one call.
type arguments struct {
	key    string
	owners []string // in whose name it is, and to whom it hands over
	ttl    time.Duration
	timed  bool // it has a TTL
}

// call runs f with a call whose arguments make sense. What the store panics with is an error.
func (p *Provider) call(ctx context.Context, what string, a arguments, f func(*call) (Result, error)) (r Result, err error) {
	c := &call{p: p, ctx: ctx}
	defer func() {
		if err == nil {
			return
		}
		if c.wrote && !errors.Is(err, lease.ErrUnknown) {
			err = fmt.Errorf("%w: %w", lease.ErrUnknown, err)
		}
		named := ""
		if len(a.owners) > 0 {
			named = fmt.Sprintf(" for %q", a.owners[0])
		}
		r, err = Result{}, fmt.Errorf("provider: %s %q%s: %w", what, a.key, named, err)
	}()
	if c.name, err = p.check(ctx, a); err != nil {
		return r, err
	}
	if len(a.owners) > 0 {
		c.owner = of(a.owners[0])
	}
	err = boundary.Call(func() (err error) { r, err = f(c); return err })
	if errors.Is(err, store.ErrSessionGone) && !c.wrote { // it ran out, and stands while a transaction guards it
		return Result{Owner: c.owner.ID}, nil
	}
	return r, err
}

// check returns the name of the key if the arguments make sense.
func (p *Provider) check(ctx context.Context, a arguments) (name string, err error) {
	if err := input.Call(ctx, p != nil && p.store != nil, "provider.New", lease.ErrInvalid); err != nil {
		return "", err
	}
	for i, o := range a.owners {
		if o == "" || len(o) > maxOwner || !utf8.ValidString(o) {
			return "", fmt.Errorf("%s: %w: %.32q, must be UTF-8 of 1 to %d bytes",
				[]string{"owner", "to"}[i], lease.ErrInvalid, o, maxOwner)
		}
	}
	if a.timed && (a.ttl < p.least || a.ttl > p.most) {
		return "", fmt.Errorf("ttl: %w: %v, must be at least %v and at most %v", lease.ErrInvalid, a.ttl, p.least, p.most)
	}
	if name, err = Name(a.key); err != nil {
		return "", err
	}
	return name, p.limits.ValidateName(name)
}
