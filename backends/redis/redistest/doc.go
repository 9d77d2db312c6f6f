// Package redistest runs real Redis servers as processes, for tests, and breaks them on purpose: a
// server, its replicas, a primary with its replica under three sentinels, and a small cluster.
//
//	func TestSurvivesTheDeathOfTheServer(t *testing.T) {
//		s := redistest.Start(t, redistest.WithAOF())
//		client := s.Client(t)
//		...
//		err := s.Kill()
//		...
//		err = s.Restart(t.Context())
//	}
//
// The server is redis-server from PATH. Where it is missing the tests say so and
// skip; with HOLDFAST_CI=1 they fail. HOLDFAST_SKIP_REDIS=1 skips them in any case.
//
//	clients, replicas, sentinels ──TCP──▶ Route ──Link──▶ unix socket of the server
//	nodes of a cluster ──TCP──▶ bus port of the node
//	this package ──────────────────────────────────────▶ unix socket of the server
//
// The ports that servers announce are held by this process for as long as the servers live: an
// address never changes, whatever is killed and restarted. This package's own connections go past
// the proxies. Servers read no configuration but their own, and write nothing to the disk unless
// WithAOF asks for it.
//
//   - Server: Kill, Restart, Pause and Resume, NewReplica, SetClock (WithFaketime), Do.
//   - Link, Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one client its own way.
//   - Sentinels: Primary.
//   - Cluster: Owner, Move.
//
// The processes end with the test and, on Linux, also when the test process is killed. The package
// needs a Unix system. Everything is safe for concurrent use; operations on one server's process
// run one after another.
package redistest
