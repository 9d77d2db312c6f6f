package singleton_test

import (
	"slices"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file is what the records of a simulated history say. Nodes are of versions one
// apart, life by life, as while they are upgraded node by node: nothing may come of it.

// version draws by which version a life of a node speaks: this one's, those around it,
// or that of before there was any word of it.
func (s *sim) version(sl *slot) string {
	return []string{"1", "", "0", "2"}[s.Odds(4, 40, uint64(slices.Index(s.slots, sl)), uint64(sl.Lives))]
}

// speaks is what that does to its records: the next version knows settings more, and one
// that differs.
func (s *sim) speaks(sl *slot) func(said map[string]string) {
	version := s.version(sl)
	return func(said map[string]string) {
		says(version)(said)
		if version == "2" {
			said[keySettings] += " message=1 another=2"
		}
	}
}

// users is the metadata of the user's, given twice.
func users(sl *slot) singleton.Option {
	return singleton.WithLeaseOptions(lease.WithMetadata(map[string]string{"first": sl.ID, "both": "no"}),
		lease.WithMetadata(map[string]string{"both": sl.ID}))
}

// checkSaid checks that a record has what the user says, and of a manager only what that
// which owns it said; under mu.
func (s *sim) checkSaid(rec lease.Record) {
	m := rec.Metadata
	if m["first"] == "" || m["both"] != m["first"] {
		s.Fail("the record of token %d lacks what the user says: %v", rec.Token, m)
	}
	if _, says := m[keyProtocol]; says && m["first"] != rec.Owner.ID {
		s.Fail("the record of token %d, of %s, says what %s said of itself: %v", rec.Token, rec.Owner.ID, m["first"], m)
	}
}

// checkAgreement checks what is made of who hosts: no version is too far from another,
// and settings that differ are known by all but the host.
func (s *sim) checkAgreement() {
	host := s.host()
	for _, sl := range s.slots {
		if host == nil || !sl.serves() {
			continue
		}
		st := sl.m.Status()
		differs := sl != host && s.version(host) == "2"
		if st.Refused != nil || differs != (st.Differs != "") {
			s.Failf("%s refuses its host, %s of version %q, or has not understood it: %v, %q", sl.ID, host.ID, s.version(host), st.Refused, st.Differs)
		}
	}
}
