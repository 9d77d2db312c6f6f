// Package httpfence carries sequencers over HTTP: a client says under which lease it acts, and a
// server refuses those whose lease has passed to another.
//
//	// the server
//	fences, err := sequencer.NewFences(sequencer.WithReader(keeper))
//	guard, err := httpfence.New(fences, httpfence.Lease("singleton/billing"))
//	mux.Handle("POST /invoices", guard.Wrap(invoices))
//
//	// the client
//	client := &http.Client{Transport: httpfence.Transport(nil)}
//	req, err := http.NewRequestWithContext(sequencer.NewContext(ctx, term), "POST", url, body)
//
// # What is refused
//
//	status  reason       the caller
//	400     malformed    sends a header that is no sequencer, or several
//	403     other-lease  has a lease, but not the one that guards what it asks for
//	409     not-held     is not superseded as far as is known, but the store says that its lease has
//	                     ended: it may acquire it again, and then repeat the request
//	412     superseded   acts for an ownership after which a later one was seen: it must stop
//	428     missing      sends no sequencer
//	503     unknown      can't be judged now: the store does not answer (unknown), work of the
//	        busy, full   earlier holder still runs (busy), or there is no room (full); with
//	                     Retry-After
//
// The status 412 is that of a condition of the request's headers that does not hold, 409 that of a
// conflict which the caller may be able to resolve. Only a Guard whose Fences have a Reader says
// 409. The body is application/problem+json (RFC 9457) and has the reason, the sequencer, and the
// token that was seen; for Error, which clients read it with.
//
// A handler runs while no later holder's does, as by Fences.Do: its request's context is done when
// a later sequencer arrives, with a cause that is lease.ErrStale, and the later one waits until it
// has returned. Reads of its request's body fail then, and writes of its response a second later, so
// that a client that stands still, as a former holder that is paused does, keeps nobody waiting. That
// takes a ResponseWriter that http.ResponseController knows; behind one that hides the server's, set
// ReadTimeout and WriteTimeout of the http.Server below WithPatience.
package httpfence
