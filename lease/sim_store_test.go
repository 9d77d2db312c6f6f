package lease_test

import (
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// These are stores that are less able than the one they embed.

// tuned is a store with other limits.
type tuned struct {
	faultstore.Whole
	change func(*lease.StoreLimits)
}

func (s tuned) Limits() lease.StoreLimits {
	l := s.Whole.Limits()
	s.change(&l)
	return l
}

// unhurried is a store that is not prompt.
func unhurried(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *lease.StoreLimits) { l.Prompt = false }}
}

// sessionless is a store that can't list by session.
func sessionless(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *lease.StoreLimits) { l.BySession = false }}
}

// watchless hides that a store can watch.
type watchless struct {
	lease.Store
	lease.TransferStore
}

// blind is a store that can neither watch nor list by session.
func blind(s faultstore.Whole) watchless { return watchless{sessionless(s), s} }
