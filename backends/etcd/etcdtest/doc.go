// Package etcdtest runs real etcd servers as processes, for tests, and breaks
// them on purpose: one member, or a cluster of three or five, on loopback only.
//
//	func TestSurvivesLossOfTheLeader(t *testing.T) {
//		c := etcdtest.Start(t, etcdtest.WithMembers(3))
//		client := c.Client(t)
//		leader, err := c.Leader(t.Context())
//		...
//		err = leader.Kill()
//	}
//
// # The server
//
// etcd is built from source on first use, through the Go module proxy, from a
// module of its own that is embedded here with its checksums, so that nothing of
// the server enters the importing module. The result is kept in the user's cache
// directory and shared by all test processes. Building takes about a minute and
// needs the go command. Two variables of the environment change this:
//
//   - HOLDFAST_ETCD_BIN: the path of an etcd binary to run instead.
//   - HOLDFAST_SKIP_ETCD=1: Start skips the test, and says so on standard error.
//
// # Who talks to whom
//
//	clients ──TCP──▶ Route ──Link──▶ unix socket of the member
//	members ──TCP──▶ peer proxies ──Link per direction──▶ unix socket of the member
//	this package ──────────────────▶ another unix socket of the member
//
// A member listens on unix sockets only. What it advertises are ports of proxies
// that this process holds for as long as the cluster lives, so an address never
// changes, whatever is killed and restarted, and no port can be lost to another
// process. This package's own requests go past the proxies: faults don't hinder
// them.
//
// # Faults
//
//   - Member: Kill, Stop and Cont, Restart with its data, Isolate and Rejoin
//     (cut off from the other members, not from clients).
//   - Link, Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one
//     client its own way to the cluster, so that only that client is cut off.
//   - Cluster: MoveLeader, Compact, Revoke, FillQuota, EnableAuth; GRPCProxy runs
//     etcd's own proxy before it.
//
// The processes end with the test and, on Linux, also when the test process is
// killed. Elsewhere a test process that dies without running its cleanups leaves
// them behind.
//
// The package needs a Unix system; cutting members off from each other needs
// Linux. Everything is safe for concurrent use; operations on one member's
// process run one after another.
package etcdtest
