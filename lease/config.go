package lease

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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
	// MeterNames has the metric holdfast.lease.holding tell of each lease of this Keeper, by name, if
	// it is held: of each singleton and shard, too. Default: no metric has the name of a lease.
	MeterNames bool
	// TracerProvider for spans of acquisitions, releases and transfers, and of the requests to the
	// store for them, which are called on the goroutines that make these. Default: OpenTelemetry's
	// global one.
	TracerProvider trace.TracerProvider
	// Clock of this node. Default: SystemClock().
	Clock store.Clock
}

// SlogLogger returns a logger for programs that use log/slog, wherever this module takes a *zap.Logger
// (Config.Logger here and of package node, the options WithLogger, remoting.LogTo): l's handler gets each
// line, with its level, and its fields as attributes. nil for nil, which is the default in all of them.
func SlogLogger(l *slog.Logger) *zap.Logger {
	if l == nil {
		return nil
	}
	return boundary.ToSlog(func() *slog.Logger { return l }, zapcore.DebugLevel)
}

func invalid(field string, got any, bound string) error {
	return fmt.Errorf("lease.Config.%s: %w: %v, must be %s", field, ErrInvalid, got, bound)
}

// complete fills in defaults and checks every field and their relations.
func (c Config) complete(lim store.Limits) (Config, error) {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.RenewFraction = cmp.Or(c.RenewFraction, 1.0/3)
	c.Jitter = max(cmp.Or(c.Jitter, 0.1), 0)
	c.NamesPerSession = cmp.Or(c.NamesPerSession, 1000)
	switch {
	case c.ID == "":
		return c, invalid("ID", `""`, "set: the node's name")
	case store.ValidateName(c.ID) != nil:
		return c, fmt.Errorf("lease.Config.ID: %w", store.ValidateName(c.ID))
	case !utf8.ValidString(c.Address):
		return c, invalid("Address", fmt.Sprintf("%.64q", c.Address), "UTF-8")
	case !(c.RenewFraction > 0 && c.RenewFraction < 1):
		return c, invalid("RenewFraction", c.RenewFraction, "above 0 and below 1: renewal must come before the TTL ends")
	case !(c.Jitter < 1):
		return c, invalid("Jitter", c.Jitter, "below 1")
	case c.NamesPerSession < 0:
		return c, invalid("NamesPerSession", c.NamesPerSession, "at least 1")
	}
	if err := c.checkTTL("lease.Config.TTL", c.TTL, lim, Renewal{}); err != nil {
		return c, err
	}
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, min(c.TTL/4, 5*time.Second))
	c.OperationTimeout = cmp.Or(c.OperationTimeout, min(c.TTL, 30*time.Second))
	c.PollMin = cmp.Or(c.PollMin, time.Second)
	c.PollMax = cmp.Or(c.PollMax, max(10*time.Second, c.PollMin))
	within := func(field string, d, least time.Duration) error {
		if d < least || d > longest {
			return invalid(field, d, fmt.Sprintf("at least %v and at most %v", least, longest))
		}
		return nil
	}
	if err := cmp.Or(within("AttemptTimeout", c.AttemptTimeout, time.Millisecond), within("OperationTimeout", c.OperationTimeout, time.Millisecond),
		within("PollMin", c.PollMin, time.Millisecond), within("PollMax", c.PollMax, c.PollMin)); err != nil {
		return c, err
	}
	for field, v := range map[string]any{"MeterProvider": c.MeterProvider, "TracerProvider": c.TracerProvider, "Clock": c.Clock} {
		if v != nil && input.Nil(v) {
			return c, invalid(field, fmt.Sprintf("a nil %T", v), "left out or not nil")
		}
	}
	c.Logger = cmp.Or(c.Logger, boundary.Default())
	c.MeterProvider = cmp.Or(c.MeterProvider, otel.GetMeterProvider())
	c.Clock = cmp.Or(c.Clock, store.SystemClock())
	return c, nil
}

// checkTTL checks a TTL and the policy of its renewal, a Keeper's or one lease's, against all that
// depends on them.
func (c Config) checkTTL(field string, ttl time.Duration, lim store.Limits, r Renewal) error {
	least, most := max(MinTTL, lim.MinTTL), cmp.Or(lim.MaxTTL, longest)
	if most = min(most, longest); ttl < least || ttl > most {
		return fmt.Errorf("%s: %w: %v, must be at least %v and at most %v", field, ErrInvalid, ttl, least, most)
	}
	if c.Margin < 0 {
		return invalid("Margin", c.Margin, "at least 0 (0: max(TTL/10, 100ms)) and below the TTL")
	}
	if err := r.check(); err != nil {
		return err
	}
	margin, window := c.margin(ttl), c.window(ttl)
	if window <= 0 {
		return fmt.Errorf("%s: %w: the margin of %v (lease.Config.Margin), must be below the TTL of %v", field, ErrInvalid, margin, ttl)
	}
	part, what := leastAttempt, ""
	switch r.way {
	case lazily:
		part, what = window-c.lazyAt(ttl), "the renewal"
	case adaptively:
		part, what = window/quickAttempts, "each of two attempts"
	}
	switch {
	case part < leastAttempt:
		return fmt.Errorf("lease.WithRenewal: %w: %v: of a TTL of %v, less a margin of %v, it leaves %v for %s, must be at least %v",
			ErrInvalid, r, ttl, margin, part, what, leastAttempt)
	case what != "", r.way == byHand, r.way == notAtAll:
		return nil
	}
	setting := "lease.Config.RenewFraction"
	if r.way == atFraction {
		setting, field = "lease.RenewAt", "lease.RenewAt"
	}
	every := c.everyOf(r, ttl)
	if every < leastRenewal {
		return fmt.Errorf("%s: %w: %v, must be enough that renewals of a TTL of %v are %v apart or more",
			setting, ErrInvalid, cmp.Or(r.fraction, c.RenewFraction), ttl, leastRenewal)
	}
	latest, least := every+time.Duration(float64(every)*c.Jitter), max(window-c.lazyAt(ttl), leastAttempt)
	if room := window - latest; room < least {
		return fmt.Errorf("%s: %w: renewal × (1 + jitter) + margin = %v + %v leaves %v of the TTL of %v for two attempts, must be at least %v: a fraction of at most %.3g",
			field, ErrInvalid, latest, margin, room, ttl, least, math.Floor(1000*float64(window-least)/float64(ttl)/(1+c.Jitter))/1000)
	}
	return nil
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
	return cmp.Or(c.Margin, max(ttl/10, 100*time.Millisecond))
}

// leastAttempt is the shortest time that a policy may leave a request to the store.
const leastAttempt = 20 * time.Millisecond

// window is the trust window of a session of ttl.
func (c Config) window(ttl time.Duration) time.Duration { return ttl - c.margin(ttl) }

// lazyAt is when RenewLazy renews, at the latest.
func (c Config) lazyAt(ttl time.Duration) time.Duration { return c.window(ttl) / 10 * 9 }

// everyOf is the time between renewals, before jitter, of policies that have a fixed one.
func (c Config) everyOf(r Renewal, ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * cmp.Or(r.fraction, c.RenewFraction))
}

// quickAttempts is into how many parts of the trust window RenewAdaptive cuts it for an attempt
// while the store is quick. Slower answers double that.
const quickAttempts = 8

// adaptedAttempt is how long RenewAdaptive gives an attempt: twice what the slowest of late took,
// by steps, so that sessions alike are renewed by one request. Two of the longest, with what
// follows them, leave a tenth of the trust window.
func (c Config) adaptedAttempt(ttl, slowest time.Duration) time.Duration {
	window := c.window(ttl)
	for a := window / quickAttempts; a < window/5*2; a *= 2 {
		if a >= 2*slowest {
			return a
		}
	}
	return window / 5 * 2
}

// adaptedAt is when RenewAdaptive renews at the latest: two attempts, each with the tenth in which
// the store is still heard, and the pause between them come before the deadline.
func (c Config) adaptedAt(ttl, slowest time.Duration) time.Duration {
	attempt := c.adaptedAttempt(ttl, slowest)
	return c.window(ttl) - 2*(attempt+attempt/10) - c.repeatIn(ttl, 1)
}
