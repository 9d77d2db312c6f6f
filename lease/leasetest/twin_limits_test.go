package leasetest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Bounds.
const (
	limitTTLUnkept      flaw = "a TTL above MaxTTL is granted"
	limitTTLCut         flaw = "MaxTTL itself is not granted"
	limitNameUnkept     flaw = "a name that CheckName refuses is taken"
	limitNameSilent     flaw = "a name that CheckName refuses is refused as if it was held"
	limitNameTight      flaw = "a name that CheckName allows is refused"
	limitMetadataUnkept flaw = "metadata above MaxMetadata is taken"
	limitMetadataTight  flaw = "metadata of MaxMetadata is refused"
	limitMetadataCoded  flaw = "MaxMetadata is compared with the length of an encoding"
	limitMoveUnkept     flaw = "a transfer takes metadata above MaxMetadata"
	limitMoveTight      flaw = "a transfer refuses metadata of MaxMetadata"
)

var limitCatches = []catch{
	{limitTTLUnkept, []by{{"limits/ttl", ruleLimits}}},
	{limitTTLCut, []by{{"limits/ttl", ruleGrant}}},
	{limitNameUnkept, []by{{"limits/names", ruleLimits}}},
	{limitNameSilent, []by{{"limits/names", ruleLimits}}},
	{limitNameTight, []by{{"limits/names", ruleWithin}}},
	{limitMetadataUnkept, []by{{"limits/metadata", ruleLimits}}},
	{limitMetadataTight, []by{{"limits/metadata", ruleWithin}}},
	{limitMetadataCoded, []by{{"limits/metadata", ruleWithin}}},
	{limitMoveUnkept, []by{{"limits/transfer", ruleLimits}}},
	{limitMoveTight, []by{{"limits/transfer", ruleWithin}}},
}

const (
	twinMaxTTL      = 1000 * time.Hour
	twinMaxMetadata = 64 << 10
)

// Limits are those of a store that keeps its names in XML.
func (s *twin) Limits() lease.StoreLimits {
	l := lease.StoreLimits{Name: "twin", While: !s.is(whileUnsupported) && !s.is(whileUnsupportedIgnored), MaxTTL: twinMaxTTL, MaxMetadata: twinMaxMetadata, CheckName: func(name string) error {
		if strings.ContainsAny(name, "\uffff\ufffe") {
			return errors.New("U+FFFE and U+FFFF are no characters")
		}
		return nil
	}}
	return l
}

// bounds are those that s keeps to.
func (s *twin) bounds() lease.StoreLimits {
	l := s.Limits()
	l.While = true // orphan answers
	switch s.flaw {
	case limitTTLUnkept:
		l.MaxTTL = 0
	case limitNameUnkept:
		l.CheckName = nil
	case limitNameTight:
		l.CheckName = func(name string) error {
			if strings.Contains(name, "..") {
				return errFlawed
			}
			return nil
		}
	case limitMetadataUnkept:
		l.MaxMetadata = 0
	case limitMetadataTight:
		l.MaxMetadata--
	}
	return l
}

// refuses is the answer to a claim that is out of bounds; ok is false if it is within.
func (s *twin) refuses(sess *sitting, c lease.Claim) (out lease.Outcome, ok bool) {
	if s.is(limitMetadataCoded) {
		if v := c.Metadata["k"]; len(v) > 100 && (len(v)+5*strings.Count(v, "\x01")) > twinMaxMetadata {
			return lease.Outcome{Err: lease.ErrInvalid}, true
		}
	}
	if s.is(whileUnchecked) && c.While != (lease.Held{}) && lease.ValidateClaim(lease.Claim{Name: c.Name, While: c.While}) != nil {
		return lease.Outcome{Err: lease.ErrParentLost}, true
	}
	err := s.bounds().ValidateClaim(c)
	switch {
	case err == nil, s.is(claimsUnchecked):
		return lease.Outcome{}, false
	case s.is(limitNameSilent) && lease.ValidateClaim(c) == nil:
		return lease.Outcome{Record: lease.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}, true
	}
	return lease.Outcome{Err: err}, true
}

// movable is what is wrong with a move.
func (s *twin) movable(m lease.Transfer) error {
	l := s.bounds()
	switch s.flaw {
	case movesUnchecked:
		return nil
	case limitMoveUnkept:
		l.MaxMetadata = 0
	case limitMoveTight:
		l.MaxMetadata--
	}
	return l.ValidateTransfer(m)
}
