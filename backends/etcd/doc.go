// Package etcd keeps leases in etcd. It implements store.Store and every optional interface beside it.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	store, err := etcd.New(client)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// There is one key per held name: the prefix (default "holdfast/") and the name. The value says who
// owns it; the key hangs on the etcd lease of the owner's session, whose ID is the session's. The key
// is written only when the ownership changes, so its mod revision is the fencing token: it increases
// with every change of ownership, also over deletion, transfer and restarts. Restoring a backup turns
// revisions back: use etcd's --bump-revision. The Store notices, and answers every call with
// store.ErrSetback until revisions are above all that it has seen, or that is accepted (docs/etcd.md).
//
//	OpenSession   LeaseGrant with the session's ID; that it exists already means that an earlier
//	              request was applied
//	Acquire       one Txn for up to 127 names: each put if the key is absent, else read
//	              (with Claim.While: and if the mod revision and nonce of that key are those)
//	Release       one Txn: each deleted if its mod revision and nonce are those
//	Transfer      one read, then one Txn for each target session: put onto the target's etcd lease
//	              if the mod revision and nonce are those
//	Renew         one message for each session, on a stream that is kept: with authentication a new
//	              stream costs a token; its first message proves that a server is there
//	Watch         one read of the prefix, then one watch from the next revision, which ends when its
//	              server has no leader (Scope.Deletions: one watch, without what is put)
//	              Scope.Progress: one read, and one message on the stream that all watches share
//
// It needs etcd 3.4.38, 3.5.23 or 3.6.5, or newer: older ones have faults in leases that break safety.
// OpenSession refuses them, and etcd's grpc-proxy, which answers renewals with older answers. A TTL is
// rounded up to whole seconds and raised to the server's floor (1.5 election timeouts, 2 s by default).
// With authentication the user needs readwrite permission on the prefix. The client is the caller's:
// its TLS, credentials and namespace are kept, and New never closes it.
package etcd
