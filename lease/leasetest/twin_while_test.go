package leasetest

import (
	"errors"

	"github.com/holdfast-go/holdfast/lease"
)

// Claims with a While.
const (
	whileIgnored            flaw = "a claim ignores While"
	whileByName             flaw = "a claim looks only whether the name of While is held"
	whileNoToken            flaw = "While is compared without its token"
	whileNoNonce            flaw = "While is compared without its nonce"
	whileOwnOnly            flaw = "While has to be the claimant's own"
	whileUnsaid             flaw = "a claim whose While does not stand is refused as if the name was held"
	whileHolderFirst        flaw = "a claim of a held name does not look at While"
	whileFreeOnly           flaw = "a claim that supersedes does not look at While"
	whileRaces              flaw = "While is looked at first, and the record written later"
	whileFailsBatch         flaw = "a claim whose While does not stand fails the whole batch"
	whileTakesAlong         flaw = "what was won under an ownership goes when that is released"
	whileSticks             flaw = "a claim that supersedes has the While of what it supersedes"
	whileUnchecked          flaw = "a While that is no ownership is a condition that is not met"
	whileUnsupported        flaw = "While is not supported" // which the contract allows
	whileUnsupportedIgnored flaw = "While is not supported, and ignored"
)

var whileCatches = []catch{
	{whileIgnored, []by{
		{"while/gone", ruleWhile},
		{"while/superseding", ruleWhile},
		{"while/transferred", ruleWhile},
		{"while/closed", ruleWhile},
		{"while/expired", ruleWhile},
		{"while/in-a-batch", ruleWhile},
		{"while/as-it-goes", ruleWhile},
		{"keeper/parent", ""},
	}},
	{whileByName, []by{{"while/gone", ruleWhile}, {"while/transferred", ruleWhile}}},
	{whileNoToken, []by{{"while/gone", ruleWhile}}},
	{whileNoNonce, []by{{"while/gone", ruleWhile}}},
	{whileOwnOnly, []by{{"while/stands", ""}, {"while/closed", ""}}},
	{whileUnsaid, []by{{"while/gone", ruleWhile}, {"keeper/parent", ""}}},
	{whileHolderFirst, []by{{"while/gone", ruleWhile}, {"while/in-a-batch", ruleWhile}}},
	{whileFreeOnly, []by{{"while/superseding", ruleWhile}}},
	{whileRaces, []by{{"while/as-it-goes", ruleWhile}}},
	{whileFailsBatch, []by{{"while/in-a-batch", ruleWhile}}},
	{whileTakesAlong, []by{{"while/stands", ruleWhileStays}}},
	{whileSticks, []by{{"while/stands", ""}}},
	{whileUnchecked, []by{{"while/invalid", ruleInvalid}}},
	{whileUnsupportedIgnored, []by{{"while/unsupported", ruleUnsupported}}},
}

// orphan is the answer to a claim whose While does not stand; ok is false if it does.
func (s *twin) orphan(sess *sitting, c lease.Claim) (out lease.Outcome, ok bool) {
	if e := s.records[c.Name]; s.is(whileSticks) && e != nil && c.While == (lease.Held{}) {
		c.While = s.hung[c.Name]
	}
	if c.While == (lease.Held{}) {
		return lease.Outcome{}, false
	}
	on := s.records[c.While.Name]
	var is lease.Held
	if on != nil {
		is = on.Held()
	}
	switch s.flaw {
	case whileIgnored, whileUnsupportedIgnored:
		is = c.While
	case whileUnsupported:
		return lease.Outcome{Err: lease.ErrUnsupported}, true
	case whileByName:
		is.Token, is.Nonce = c.While.Token, c.While.Nonce
	case whileNoToken:
		is.Token = c.While.Token
	case whileNoNonce:
		is.Nonce = c.While.Nonce
	case whileOwnOnly:
		if on != nil && on.Owner != sess.Owner {
			is = lease.Held{}
		}
	case whileHolderFirst:
		if e := s.records[c.Name]; e != nil && e.Owner != sess.Owner {
			return lease.Outcome{Record: s.public(e)}, true
		}
	case whileFreeOnly:
		if c.Supersedes != 0 {
			is = c.While
		}
	}
	if is != c.While {
		if s.is(whileUnsaid) {
			return lease.Outcome{Record: lease.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}, true
		}
		return lease.Outcome{Err: lease.ErrParentLost}, true
	}
	s.gap(whileRaces)
	s.hung[c.Name] = c.While
	return lease.Outcome{}, false
}

// dropHung removes what hangs on e, which is released.
func (s *twin) dropHung(e *entry) {
	for name, on := range s.hung {
		if child := s.records[name]; s.is(whileTakesAlong) && on == e.Held() && child != nil {
			s.remove(child)
		}
	}
}

func failsBatch(outs []lease.Outcome) error {
	for _, out := range outs {
		if errors.Is(out.Err, lease.ErrParentLost) {
			return out.Err
		}
	}
	return nil
}
