package httpfence

import (
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
)

// Set writes the sequencer of an ownership into h, in the place of any that is there. Errors are
// those of sequencer.Of, and lease.ErrInvalid if h is nil; then h is unchanged.
func Set(h http.Header, o lease.Ownership) error {
	if h == nil {
		return fmt.Errorf("httpfence.Set: h: %w: nil, nothing can be written into it", lease.ErrInvalid)
	}
	s, err := sequencer.Of(o)
	if err != nil {
		return err
	}
	h.Set(Header, s.String())
	return nil
}

// Transport returns a RoundTripper that gives each request the sequencer of what its context bears
// (sequencer.NewContext), and passes it on to base; http.DefaultTransport if that is nil. A request
// whose context bears nothing, or that has the header already, is passed on as it is. Requests that
// follow redirects get the sequencer, too, wherever they lead.
//
// A request is not sent if the ownership has ended by its own word (CheckAlive), lease.ErrNotHeld,
// or has no sequencer, lease.ErrInvalid. That saves the way only: one may end behind the check, and
// the server judges.
func Transport(base http.RoundTripper) http.RoundTripper {
	if input.Nil(base) {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	o, ok := sequencer.FromContext(r.Context())
	if !ok || len(r.Header.Values(Header)) > 0 {
		return t.base.RoundTrip(r)
	}
	with := r.Clone(r.Context()) // a RoundTripper must not change what it is given
	err := Set(with.Header, o)
	if alive, asks := o.(interface{ CheckAlive() bool }); err == nil && asks && !alive.CheckAlive() {
		err = fmt.Errorf("sequencer %s: %w: not sent", with.Header.Get(Header), lease.ErrNotHeld)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, fmt.Errorf("httpfence: %w", err)
	}
	return t.base.RoundTrip(with)
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (t transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
