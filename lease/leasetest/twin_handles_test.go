package leasetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// Handles.
const (
	handleAny        flaw = "any handle will do"
	handleAnyRenew   flaw = "any handle will do to renew"
	handleAnyOpen    flaw = "any handle will do to open a session again"
	handleAnyClose   flaw = "any handle will do to close"
	handleAnyAcquire flaw = "any handle will do to acquire"
	handleAnyOffer   flaw = "any handle will do in an offer"
	handleFolded     flaw = "handles are compared without their case"
	handlePrefix     flaw = "of a handle the beginning is compared"
	handleUnsaid     flaw = "a handle that is not the session's is a failure"
	handleFailsAll   flaw = "a handle that is not the session's fails the whole renewal"
	handleChanges    flaw = "a session that is opened again gets another handle"
	handleLong       flaw = "handles are longer than MaxHandle"
	handleBytes      flaw = "handles are not UTF-8"
)

var handleCatches = []catch{
	{handleAny, []by{{"handles/foreign", ruleForeign}, {"handles/foreign-offer", ruleForeign}}},
	{handleAnyRenew, []by{{"handles/foreign", ruleForeign}}},
	{handleAnyOpen, []by{{"handles/foreign", ruleForeign}}},
	{handleAnyClose, []by{{"handles/foreign", ruleForeign}}},
	{handleAnyAcquire, []by{{"handles/foreign", ruleForeign}}},
	{handleAnyOffer, []by{{"handles/foreign-offer", ruleForeign}}},
	{handleFolded, []by{{"handles/foreign", ruleForeign}}},
	{handlePrefix, []by{{"handles/foreign", ruleForeign}}},
	{handleUnsaid, []by{{"handles/foreign", ruleForeign}}},
	{handleFailsAll, []by{{"handles/foreign", ruleForeign}}},
	{handleChanges, []by{{"handles/granted", ""}}},
	{handleLong, []by{{"acquire/free", ruleHandle}}},
	{handleBytes, []by{{"acquire/free", ruleHandle}}},
}

// handleOf is what the session was granted under.
func (s *twin) handleOf(id lease.SessionID) string {
	h := fmt.Sprintf("row/%x", int64(id))
	switch s.flaw {
	case handleLong:
		h = strings.Repeat(h, 100)
	case handleBytes:
		h += "\xff"
	case handleChanges:
		s.calls++
		h = fmt.Sprint(h, s.calls)
	}
	return h
}

// misnamed is what is said of a session that came with a handle that is not its own; of is the
// flaw that lets it pass.
func (s *twin) misnamed(id lease.SessionID, handle string, of flaw) error {
	want := s.handleOf(id)
	switch {
	case want == handle, s.is(handleAny), s.is(of), s.is(handleChanges),
		s.is(handleFolded) && strings.EqualFold(want, handle), s.is(handlePrefix) && strings.HasPrefix(handle, want):
		return nil
	case s.is(handleUnsaid):
		return errFlawed
	}
	return fmt.Errorf("%w: session %d has no handle %.64q", lease.ErrInvalid, id, handle)
}

// TestRightHandlesPass runs the kit over a store that was given handles, of which each client
// knows those of all.
func TestRightHandlesPass(t *testing.T) {
	Run(t, func(TB) func() lease.Store {
		inner := memory.New()
		return func() lease.Store { return faultstore.Wrap(inner, faultstore.WithHandles("store/ä")) }
	}, FakeTime())
}
