// Package etcd keeps leases in etcd. It implements lease.Store,
// lease.TransferStore, lease.Watcher, lease.DeletionWatcher, lease.Prober,
// lease.Historian and lease.Limiter.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	store, err := etcd.New(client)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// # What stands in etcd
//
// One key per held name: the prefix (default "holdfast/") and the name. The
// value says who owns it; the key hangs on the etcd lease of the
// owner's session, whose ID is the session's. The key is written only when the
// ownership changes, so its mod revision is the fencing token: it increases with
// every change of ownership of every name, also over deletion, transfer and
// restarts of everything. (Restoring a backup turns revisions back, and with
// them tokens: use etcd's --bump-revision. The Store notices, and answers every
// call with lease.ErrSetback until revisions are above all that it has seen, or
// that is accepted; docs/etcd.md has what to do.)
//
// # What is sent
//
//	OpenSession   LeaseGrant with the session's ID; that it exists already means
//	              that an earlier request was applied
//	Acquire       one Txn for up to 127 names: each put if the key is absent, else
//	              read
//	              (with Claim.While: and if the mod revision and nonce of that key are those)
//	Release       one Txn: each deleted if its mod revision and nonce are those
//	Transfer      one read, then one Txn for each target session: put onto the
//	              target's etcd lease if the mod revision and nonce are those
//	Renew         one message for each session, on a stream that is kept: the
//	              client fetches a token for each new one if there is
//	              authentication, which costs a server more than all else here;
//	              the first message of a stream proves that a server is there
//	Watch         one read of the prefix, then one watch from the next revision,
//	              that ends when its server has no leader
//	              (WatchDeletions: one watch, and the server leaves out what is put)
//	Probe         one read, and one message on the stream that all watches share:
//	              those whose server answers it run on
//
// Names share etcd leases, up to 1000 by the Keeper's default: renewing costs
// one message for as many names.
//
// # Requirements
//
// etcd 3.4.38, 3.5.23 or 3.6.5, or newer: older ones have faults in leases that
// break safety; OpenSession refuses them, at whichever endpoint. etcd's grpc-proxy
// answers renewals with older answers of its own: it is refused. A TTL is rounded up to whole seconds and
// raised to the server's floor (1.5 election timeouts, 2 s by default); what was
// granted counts. With authentication the user needs readwrite permission on the
// prefix. The client is the caller's: its TLS, credentials and namespace are
// kept, and New never closes it.
package etcd
