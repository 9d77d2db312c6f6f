package lease

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// MinTTL is the shortest TTL a Keeper accepts.
const MinTTL = 300 * time.Millisecond

// longest bounds every duration of a Config.
const longest = input.Longest

// leastRenewal is the shortest time between renewals: with less a Keeper would do
// nothing else.
const leastRenewal = time.Millisecond

// retryMax is the longest pause between retries of a failing store; they begin at a tenth of it.
// Renewals are repeated at most a tenth of their TTL apart.
const retryMax = time.Second

// Config holds every setting of a Keeper. Zero values mean the defaults given
// here; NewKeeper validates the whole.
type Config struct {
	// ID is the node's name in records. Required, at most MaxName bytes of UTF-8.
	ID string
	// Address is where the node's actor system is reached; empty if nowhere. UTF-8.
	Address string

	// Every duration is at most a year.

	// TTL is how long a record outlives its last renewal, unless a lease
	// overrides it. Default 10 s, at least MinTTL and the store's minimum, at most the
	// store's maximum.
	TTL time.Duration
	// RenewFraction of the TTL is the time between renewals, at least 1 ms. Default
	// 1/3.
	RenewFraction float64
	// Jitter spreads renewals by up to this fraction of their interval, either
	// way. Default 0.1; negative means none. Renewal × (1 + Jitter) + Margin must
	// leave a tenth of TTL - Margin, and at least 20 ms, for two attempts.
	Jitter float64
	// Margin is how much before the end of the TTL a holder stops trusting. It
	// covers the difference in rate between the holder's clock and the store's.
	// Default max(TTL/10, 100 ms).
	Margin time.Duration

	// AttemptTimeout bounds each request to the store: its context ends then. A
	// store that does not heed its context is given up a tenth later. Default
	// TTL/4, at most 5 s. For a lease with a shorter TTL (WithTTL) its session is
	// opened and renewed by requests of a quarter of that TTL at the most, so that
	// it outlives one that stalls.
	AttemptTimeout time.Duration
	// OperationTimeout bounds Acquire, Release, Offer, Transfer and Adopt for their
	// caller, with all retries and the time spent behind other operations of the
	// handle, beside the caller's context. What is under way then ends in the
	// background: at most opening or renewing a session, twice, and the request
	// itself, each within its AttemptTimeout. Default: the TTL, at most 30 s.
	OperationTimeout time.Duration

	// NamesPerSession bounds how many names share a session. Default 1000. Sessions are
	// opened when they are needed, and closed a TTL after they became empty.
	NamesPerSession int

	// AcceptSetbacks: a store whose history goes back (ErrSetback) is accepted as it
	// then stands, a TTL after that was noticed, as by Keeper.AcceptHistory. For programs
	// that fence nothing by tokens. Default: it is for the operator to decide.
	AcceptSetbacks bool

	// PollMin and PollMax bound the jittered, exponentially growing pause
	// between looks at a name that is waited for, where the store can't watch.
	// Where it can, PollMax is the pause between looks that back that up.
	// Defaults 1 s and 10 s.
	PollMin, PollMax time.Duration

	// Logger gets one line per transition: won, lost and moved at info; an outage of
	// the store as one warning when it begins and one when it is over. It is called
	// by a goroutine of its own, in order, so that one that blocks or panics holds
	// nothing up; lines that it does not keep up with are dropped, and counted.
	// Default: warnings and errors go to slog.Default(). zap.NewNop() for silence.
	Logger *zap.Logger
	// MeterProvider for metrics, whose instruments are called in the same way.
	// Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// Clock of this node. Default: SystemClock().
	Clock store.Clock
}

func invalid(field string, got any, bound string) error {
	return fmt.Errorf("lease.Config.%s: %w: %v, must be %s", field, ErrInvalid, got, bound)
}

// complete fills in defaults and checks every field and their relations.
func (c Config) complete(lim store.Limits) (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	switch {
	case c.ID == "":
		return c, invalid("ID", `""`, "set: the node's name")
	case store.ValidateName(c.ID) != nil:
		return c, fmt.Errorf("lease.Config.ID: %w", store.ValidateName(c.ID))
	case !utf8.ValidString(c.Address):
		return c, invalid("Address", fmt.Sprintf("%.64q", c.Address), "UTF-8")
	}
	def(&c.TTL, 10*time.Second)
	if c.RenewFraction == 0 {
		c.RenewFraction = 1.0 / 3
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = 0.1
	case c.Jitter < 0:
		c.Jitter = 0
	}
	if !(c.RenewFraction > 0 && c.RenewFraction < 1) {
		return c, invalid("RenewFraction", c.RenewFraction, "above 0 and below 1: renewal must come before the TTL ends")
	}
	if !(c.Jitter < 1) {
		return c, invalid("Jitter", c.Jitter, "below 1")
	}
	if err := c.checkTTL("lease.Config.TTL", c.TTL, lim, Renewal{}); err != nil {
		return c, err
	}
	def(&c.AttemptTimeout, min(c.TTL/4, 5*time.Second))
	def(&c.OperationTimeout, min(c.TTL, 30*time.Second))
	def(&c.PollMin, time.Second)
	def(&c.PollMax, max(10*time.Second, c.PollMin))
	for _, f := range []struct {
		name string
		d    time.Duration
		min  time.Duration
	}{
		{"AttemptTimeout", c.AttemptTimeout, time.Millisecond},
		{"OperationTimeout", c.OperationTimeout, time.Millisecond},
		{"PollMin", c.PollMin, time.Millisecond},
		{"PollMax", c.PollMax, c.PollMin},
	} {
		if f.d < f.min || f.d > longest {
			return c, invalid(f.name, f.d, fmt.Sprintf("at least %v and at most %v", f.min, longest))
		}
	}
	switch {
	case c.NamesPerSession < 0:
		return c, invalid("NamesPerSession", c.NamesPerSession, "at least 1")
	case c.NamesPerSession == 0:
		c.NamesPerSession = 1000
	}
	for field, v := range map[string]any{"MeterProvider": c.MeterProvider, "Clock": c.Clock} {
		if v != nil && input.Nil(v) {
			return c, invalid(field, fmt.Sprintf("a nil %T", v), "left out or not nil")
		}
	}
	if c.Logger == nil {
		c.Logger = boundary.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.Clock == nil {
		c.Clock = store.SystemClock()
	}
	return c, nil
}

// checkTTL checks a TTL and the policy of its renewal, a Keeper's or one lease's, against all that
// depends on them.
func (c Config) checkTTL(field string, ttl time.Duration, lim store.Limits, r Renewal) error {
	if least, most := ttls(lim); ttl < least || ttl > most {
		return fmt.Errorf("%s: %w: %v, must be at least %v and at most %v", field, ErrInvalid, ttl, least, most)
	}
	if c.Margin < 0 {
		return invalid("Margin", c.Margin, "at least 0 (0: max(TTL/10, 100ms)) and below the TTL")
	}
	return c.checkRenewal(field, r, ttl)
}

func (c Config) renewEvery(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * c.RenewFraction)
}

// attempt bounds a request to open or renew a session of ttl.
func (c Config) attempt(ttl time.Duration) time.Duration {
	if ttl >= c.TTL {
		return c.AttemptTimeout
	}
	return min(c.AttemptTimeout, ttl/4)
}

// repeatIn is the pause, before jitter, after a number of failed renewals of a
// session of ttl.
func (c Config) repeatIn(ttl time.Duration, failures int) time.Duration {
	most := min(retryMax, ttl/10)
	return min(most, most/10<<min(failures-1, 10))
}

// slowly is how many failures make the pause of repeatIn the longest.
const slowly = 11

func (c Config) margin(ttl time.Duration) time.Duration {
	if c.Margin > 0 {
		return c.Margin
	}
	return max(ttl/10, 100*time.Millisecond)
}

// Option sets something of one lease.
type Option func(*options)

type options struct {
	ttl        time.Duration
	renewal    Renewal
	metadata   map[string]string
	ownSession bool
	parent     *Handle
	hangs      bool // WithParent was given
}

// WithTTL overrides the Keeper's TTL.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithMetadata is written into the record with every acquisition. Keys and values
// are UTF-8, and no more than the store can hold, or Keeper.Lease returns ErrInvalid. Given
// more than once the keys of all are written; of a key that is given again the later value
// counts.
func WithMetadata(m map[string]string) Option {
	return func(o *options) { o.metadata = merged(o.metadata, m) }
}

// WithOwnSession gives the lease a session that it shares with no other, so
// that its expiry and renewal are its own.
func WithOwnSession() Option { return func(o *options) { o.ownSession = true } }

// What follows holds what is asked of a Keeper, and of its store, against their bounds.

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

// Validate returns what Lease would say of the name and the options, and makes nothing: for
// settings that are read before they are used. That a handle of the name exists is no error.
func (k *Keeper) Validate(name string, opts ...Option) error {
	_, err := k.configure(name, opts)
	return err
}
