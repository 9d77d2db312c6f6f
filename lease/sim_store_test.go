package lease_test

import (
	"math/rand/v2"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// These are stores that are less able than the one they embed.

// watchless hides that a store can watch.
type watchless struct {
	lease.Store
	lease.TransferStore
	lease.Limiter
}

// listing makes a store that can't watch list by session.
func listing(store lease.Store, lister lease.SessionLister) lease.Store {
	switch less := store.(type) {
	case watchless:
		return struct {
			watchless
			lease.SessionLister
		}{less, lister}
	case *faultstore.Hinting:
		return struct {
			*faultstore.Hinting
			lease.SessionLister
		}{less, lister}
	}
	return store
}

// unhurried hides that a store is prompt.
type unhurried struct {
	lease.Store
	lease.TransferStore
	lease.Watcher
	lease.DeletionWatcher
}

// wordy hides that a store can tell of deletions alone.
type wordy struct {
	lease.Store
	lease.TransferStore
	lease.Watcher
	lease.Limiter
}

// slowAndWordy hides that a store is prompt, and that it can tell of deletions alone.
type slowAndWordy struct {
	lease.Store
	lease.TransferStore
	lease.Watcher
}

// hinted makes a store one that can't watch and gives hints: some are missing, some are
// doubled, given for nothing or without a name. Its node has them lag behind.
func (s *sim) hinted(base faultstore.Watched) lease.Store {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(s.r.Uint64(), 4))
	odds := []float64{0, 0.1, 0.5, 1}[s.r.IntN(4)]
	return faultstore.NewHinting(base, func(h lease.Hint) []lease.Hint {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= odds {
			return []lease.Hint{h}
		}
		switch r.IntN(4) {
		case 0:
			return []lease.Hint{h, h}
		case 1:
			return []lease.Hint{{}, {Name: s.names[r.IntN(len(s.names))]}}
		case 2:
			return []lease.Hint{{Name: s.names[r.IntN(len(s.names))]}}
		}
		return nil
	})
}
