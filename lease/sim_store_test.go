package lease_test

import (
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// These are stores that are less able than the one they embed.

// tuned is a store with other limits.
type tuned struct {
	faultstore.Whole
	change func(*store.Limits)
}

func (s tuned) Limits() store.Limits {
	l := s.Whole.Limits()
	s.change(&l)
	return l
}

// unhurried is a store that is not prompt.
func unhurried(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *store.Limits) { l.Prompt = false }}
}

// sessionless is a store that can't list by session.
func sessionless(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *store.Limits) { l.BySession = false }}
}

// watchless hides that a store can watch.
type watchless struct {
	store.Store
	store.Transferrer
}

// blind is a store that can neither watch nor list by session.
func blind(s faultstore.Whole) watchless { return watchless{sessionless(s), s} }
