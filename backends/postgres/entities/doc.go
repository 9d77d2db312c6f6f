// Package entities remembers the entities of shards in PostgreSQL, beside the shards' leases. It
// implements sharding.EntityStore.
//
//	leases, err := postgres.New(pool)
//	remembered, err := entities.New(pool, leases)
//
// # What stands in the database
//
// Two tables of the leases' schema, which postgres.Store.Migrate makes: entity has a row for each
// shard and id, entity_mark one for each shard that was ever loaded. Nothing of them expires: they
// outlive the cluster.
//
// # What is sent
//
// Load and Update are one request each, and applied as a whole. Each is a transaction that guards
// itself by the shard's lease (postgres.Store.Guard): it is refused if the lease is not held with
// that token any more, also if it has run out and has no new owner yet, and the next owner gets the
// lease only once it has ended. Token 0 is store.ErrInvalid.
//
// A server of an earlier timeline than one that the leases' Store has used, such as an old primary
// that came back, is asked for nothing: the error is postgres.ErrOldPrimary, and store.ErrDenied. If
// the leases' Store goes to another timeline while a request is under way, the error says nothing
// definite. A connection whose client_encoding or array_nulls is not fit is refused, too, as
// postgres.ErrUnsafeServer.
//
// An Update is also conditional on the mark, which each Load and Update changes: a request that
// lingered on its way, and was given up by its sender, is not applied any more once a later one
// was. The requests of a shard are therefore sent one after another, and Stores that write under
// one ownership at a time make each other try again.
package entities
