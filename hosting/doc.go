// Package hosting has what users of singletons and of sharded entities share: the state
// that an actor hands over (Stateful), what gives way when a buffer is full (DropPolicy),
// what becomes of a lease whose actor does not stop (Overdue), what a sender learns of
// a message that was not delivered (Undeliverable, and the errors of Ask), and leaders that come by
// the EventStream (FromEventStream, ToEventStream).
//
//	singleton.Start(system, keeper, "cron", props, singleton.WithBuffer(100, hosting.DropOldest))
//	sharding.Start(system, group, accounts, sharding.WithOverdue(hosting.ReleaseAfterTTL))
//	errors.Is(err, hosting.ErrUnconfirmed) // of singleton.Ask and sharding.Ask
package hosting
