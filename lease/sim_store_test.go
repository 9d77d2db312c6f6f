package lease_test

import "github.com/holdfast-go/holdfast/lease"

// These are stores that are less able than the one they embed.

// watchless hides that a store can watch.
type watchless struct {
	lease.Store
	lease.TransferStore
	lease.Limiter
}

// listing makes a store that can't watch list by session.
func listing(store lease.Store, lister lease.SessionLister) lease.Store {
	if less, ok := store.(watchless); ok {
		return struct {
			watchless
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
