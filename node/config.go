package node

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
)

// Config says what a node is. What has no default and no remark may stay empty.
type Config struct {
	// ID names the node in records, logs and metrics. Required. No two nodes of a group that
	// live have one ID.
	ID string
	// Store keeps the leases: one store for all nodes. Required. The node does not close it.
	Store store.Store

	// Listen is host:port where other nodes reach this one; port 0 is any that is
	// free. Empty: the node is alone, as a program of one process is.
	Listen string
	// Advertise is the host, or host:port, that others use, if it is not Listen's. Without a
	// port it has Listen's, which can't be 0 then.
	Advertise string
	// Plaintext has nodes talk without encryption, and trust every peer that reaches Listen.
	// Where Listen is set, either it or TLS must be.
	Plaintext bool
	// TLS has nodes authenticate each other: see remoting.WithTLS.
	TLS *TLS
	// Messages are the Go types that travel between nodes, beside those that
	// remoting.Register was called for and Protocol Buffers messages: see Types.
	Messages []Type

	// Group is the group of nodes that this one joins. Empty: none, and so no
	// sharded types.
	Group string
	// Membership has options of membership.Join, such as WithRoles and WithCapacity.
	Membership []membership.Option

	// Lease has the settings of the Keeper. Its ID and Address are the node's;
	// Logger, MeterProvider and TracerProvider are too where it has none.
	Lease lease.Config

	// Settings are TTLs and renewals from a file: see LoadSettings. What it says of a name counts
	// more than options in code, so that it can be changed without a build; what stands at its top
	// more than Lease, and less than options. A singleton with a lease of its own
	// (singleton.WithLease) takes nothing from it. nil: none.
	Settings *Settings

	// HTTP is host:port where /livez, /readyz and /info are served; port 0 is any
	// that is free. Empty: nowhere. What it says names leases and hosts: it is not
	// for the public.
	HTTP string

	// Console serves the console's page at /holdfast/ of HTTP and of Handler, if it is not nil: see
	// package console. Without Authorize all who reach HTTP may read it.
	Console *console.Config

	// StopWithin bounds Stop when a signal, the end of a context or of the actor
	// system causes it. Default 25 s, which is less than Kubernetes waits.
	StopWithin time.Duration

	// Logger gets a line for each step and transition. Default: warnings and errors
	// go to slog.Default(). For a *slog.Logger: lease.SlogLogger.
	Logger *zap.Logger
	// MeterProvider for metrics. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// TracerProvider for spans. Default: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
}

// TLS is how nodes authenticate each other.
type TLS struct {
	Server *tls.Config // for connections that are accepted
	Client *tls.Config // for connections that are made
}

// Type is a Go type that travels, and the name that every node knows it by.
type Type struct {
	name string
	typ  reflect.Type
}

// Types returns the types of values; a pointer stands for what it points to. Each is named
// by its package and its own name, such as "main.AddJob": nodes that are to understand each
// other must have it in a package of one path. remoting.Register gives names that outlive a move of
// the code. Values travel as JSON, by their exported fields: a struct of which none is exported can't.
//
// A type that got a name before, in this process, keeps that name and its codec.
func Types(values ...any) []Type {
	all := make([]Type, 0, len(values))
	for _, v := range values {
		t := reflect.TypeOf(v)
		if t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		name := ""
		switch {
		case t == nil:
		case t.Name() == "":
			name = t.String()
		default:
			name = t.PkgPath() + "." + t.Name()
		}
		all = append(all, Type{name, t})
	}
	return all
}

// Defaults and bounds.
const (
	defaultStopWithin = 25 * time.Second
	longest           = 24 * time.Hour
	joinPatience      = 2 * time.Second // Start goes on without a store that takes longer
)

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", field, lease.ErrInvalid, fmt.Sprintf(format, args...))
}

// about names the field of Config that an error is about.
func about(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }

// complete fills in the defaults, and names the field that is wrong.
func (c *Config) complete() error {
	if c.StopWithin == 0 {
		c.StopWithin = defaultStopWithin
	}
	if c.Settings == nil || c.Settings.all == nil {
		c.Settings = &Settings{all: &timing{}}
	}
	switch {
	case c.ID == "":
		return invalid("ID", "empty, must be the node's name")
	case input.Nil(c.Store):
		return invalid("Store", "nil, must be the store of all nodes, such as open.Open returns")
	case c.Lease.ID != "" && c.Lease.ID != c.ID:
		return invalid("Lease.ID", "%.64q, must be empty: ID is the node's", c.Lease.ID)
	case c.Lease.Address != "":
		return invalid("Lease.Address", "%.64q, must be empty: the node knows its address", c.Lease.Address)
	case c.StopWithin < 0 || c.StopWithin > longest:
		return invalid("StopWithin", "%v, must be above 0 and at most %v", c.StopWithin, longest)
	case c.Listen == "" && (c.Advertise != "" || c.Plaintext || c.TLS != nil):
		return invalid("Listen", "empty: Advertise, Plaintext and TLS mean nothing without it")
	case c.Listen != "" && c.Plaintext == (c.TLS != nil):
		return invalid("TLS", "either TLS or Plaintext must be set where Listen is, and not both")
	case c.Group == "" && len(c.Membership) > 0:
		return invalid("Group", "empty: Membership means nothing without it")
	case slices.ContainsFunc(c.Messages, func(t Type) bool { return t.typ == nil }):
		return invalid("Messages", "a nil value has no type")
	case c.MeterProvider != nil && input.Nil(c.MeterProvider):
		return invalid("MeterProvider", "a nil %T", c.MeterProvider)
	case c.TracerProvider != nil && input.Nil(c.TracerProvider):
		return invalid("TracerProvider", "a nil %T", c.TracerProvider)
	}
	return nil
}

// register makes the messages known. A type that has a name already keeps it.
func (c *Config) register() error {
	for _, t := range c.Messages {
		if err := wire.RegisterType(wire.Default, t.typ, t.name); err != nil {
			return about("Messages", err)
		}
	}
	return nil
}
