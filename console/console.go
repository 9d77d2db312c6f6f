// Package console shows a cluster: an http.Handler with a page and a JSON API, for any node.
package console

import (
	"context"
	"net/http"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
)

// Config is what a Console may do beyond reading.
type Config struct {
	// Authorize is asked for every request; an error is 403. Nil: all who reach the handler may
	// read.
	Authorize func(r *http.Request, a Access) (user string, err error)
	// Actions allows those of Actions to whom Authorize allows. It needs Authorize.
	Actions bool
	// Text changes or hides what may tell secrets: metadata, reasons, panics. Nil: shown as they are.
	Text func(string) string
}

// Access is what a request would do.
type Access struct {
	Action string // "read", or one of Actions
	Target string // a node's id or a lease's name
}

// Console is the page and its JSON API. Safe for concurrent use.
type Console struct{}

// New makes a Console of what keeper's store has, and, if system is not nil, of what its nodes tell.
func New(keeper *lease.Keeper, system *actor.ActorSystem, cfg Config) (*Console, error) {
	panic("to do")
}

// Snapshot returns the whole, with events and timeline from since on.
func (c *Console) Snapshot(ctx context.Context, since time.Time) (Snapshot, error) {
	panic("to do")
}

// Changes calls f with a Snapshot about each second that something changed, and at once with the first, until ctx is done.
func (c *Console) Changes(ctx context.Context, f func(Snapshot)) error { panic("to do") }

// Act carries out a Request for a user that Authorize allowed it to.
func (c *Console) Act(ctx context.Context, user string, r Request) (Accepted, error) { panic("to do") }

// Close ends what the Console follows.
func (c *Console) Close() {}
