// Package node starts a node of a cluster in one call, and ends it in one.
//
//	n, err := node.Start(ctx, node.Config{
//		ID: os.Getenv("POD_NAME"), Store: store,
//		Listen: os.Getenv("POD_IP") + ":8080", Plaintext: true,
//		Group: "bank", HTTP: ":9090",
//	})
//	…
//	cron, err := n.Singleton("cron", props)
//	accounts, err := n.Sharded("account", props)
//	…
//	err = n.Run(ctx) // until a signal
//
// It has no logic that its parts lack: remoting, lease.Keeper, membership, singleton, sharding and
// partition stay usable alone, and each can be made elsewhere and given to it.
//
//	order of starting                        order of stopping
//	1 actor system                           1 readiness fails
//	2 remoting, which gives it its address   2 sharded types, partitions and singletons, side by side
//	3 Keeper, whose records carry that       3 group
//	4 HTTP                                   4 Keeper
//	5 group                                  5 remoting
//	6 singletons, sharded types, partitions  6 HTTP, actor system
package node
