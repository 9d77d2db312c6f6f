// Package partition says which node owns which partition, without actors and without a coordinator:
// for consumers, workers, controllers and jobs that are spread over nodes, each run by one at a time.
//
//	p, err := partition.Start(ctx, group, partition.Config{Name: "orders", Count: 256, Own: own})
//
// Every node that starts it takes part. To own a partition is to hold its lease; so nodes that
// disagree cost moves, and never have a partition owned twice. Where partitions should be every node
// computes by itself, from the members of the group and the records of the leases:
//
//	Keeper.Watch ─▶ table ─┐
//	Group.Members ─────────┴▶ place (pure) ─▶ a slot for each partition that is due here, or leaves
//	                                           slot: Prepare ─▶ ready lease ─▶ lease ─▶ Own ─▶ passed on
//
// A partition moves so: its next owner calls Prepare, and holds the partition's ready
// lease, with an offer in its metadata. The owner sees that, ends Own, and passes the lease by the
// offer, so that no third node can have it between. A partition for which a node is ready counts as
// moved, so that plans do not change under way.
package partition
