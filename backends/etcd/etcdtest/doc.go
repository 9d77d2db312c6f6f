// Package etcdtest runs real etcd servers as processes, for tests, and breaks them on purpose: one
// member, or a cluster of three or five, on loopback only.
//
//	func TestSurvivesLossOfTheLeader(t *testing.T) {
//		c := etcdtest.Start(t, etcdtest.WithMembers(3))
//		client := c.Client(t)
//		leader, err := c.Leader(t.Context())
//		...
//		err = leader.Kill()
//	}
//
// etcd is built from source on first use, through the Go module proxy, from an embedded module of its
// own, so that nothing of the server enters the importing module. The result is kept in the user's
// cache directory. Building takes about a minute and needs the go command. HOLDFAST_ETCD_BIN names a
// binary to run instead; with HOLDFAST_SKIP_ETCD=1 Start skips the test, and says so.
//
//	clients ──TCP──▶ Route ──Link──▶ unix socket of the member
//	members ──TCP──▶ peer proxies ──Link per direction──▶ unix socket of the member
//	this package ──────────────────▶ another unix socket of the member
//
// A member advertises ports of proxies that this process holds for as long as the cluster lives: an
// address never changes, whatever is killed and restarted. This package's own requests go past the
// proxies.
//
//   - Member: Kill, Stop and Cont, Restart with its data, Isolate and Rejoin (cut off from the other
//     members, not from clients).
//   - Link, Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one client its own way to the
//     cluster, so that only that client is cut off.
//   - Cluster: Leader, WithTLS, WithAuth and AddUser.
//
// The processes end with the test and, on Linux, also when the test process is killed. The package
// needs a Unix system; cutting members off from each other needs Linux. Everything is safe for
// concurrent use; operations on one member's process run one after another.
package etcdtest
