// Package etcdstore remembers the entities of shards in etcd, beside the shards'
// leases. It implements sharding.EntityStore.
//
//	leases, err := etcd.New(client)
//	entities, err := etcdstore.New(client, leases)
//
// # What stands in etcd
//
// One key for each id: the prefix, which is that of the leases with "-entities" before
// its slash ("holdfast-entities/"), the name of the shard's lease, a slash, and the id,
// escaped as in a URL's path. And one for each shard that was ever loaded, the mark: the
// same with an empty id. Values are empty, and no key hangs on an etcd lease: they
// outlive the cluster.
//
// # What is sent
//
//	Load    one Txn for each 1000 ids, all of the first's revision; the first puts
//	        the mark
//	Update  one Txn for each 99 ids that change, the additions first, each with a put
//	        of the mark. What fits one Txn is applied as a whole.
//
// Every Txn is conditional on the shard's lease: that its key still has o's token
// as mod revision. A lease that was released or has run out makes its last owner
// stale, too, though there is no newer one yet. Token 0 is lease.ErrInvalid.
//
// A Txn of an Update is also conditional on the mark, which each changes: a
// request that lingered on its way, and was given up by its sender, is not applied
// any more once a later one was. Calls that write under one ownership at a time make
// each other try again.
//
// # Requirements
//
// Those of backends/etcd, and a server that takes 100 operations in a Txn
// (--max-txn-ops; 128 by default). With authentication the user needs readwrite
// permission on the prefix, and read permission on that of the leases.
package etcdstore
