// Package postgrestest runs real PostgreSQL servers as processes, for tests, and breaks them on
// purpose: a server, its standbys, and PgBouncer before them.
//
//	func TestSurvivesTheDeathOfTheServer(t *testing.T) {
//		s := postgrestest.Start(t)
//		pool := s.Pool(t)
//		...
//		err := s.Kill()
//		...
//		err = s.Restart(t.Context())
//	}
//
// The server is the installed one: from the directory that HOLDFAST_POSTGRES_BIN names, from PATH, or
// from where Debian and others put it, the newest. Where it is missing the tests say so and skip; with
// HOLDFAST_CI=1 they fail. HOLDFAST_SKIP_POSTGRES=1 skips them in any case. A test that runs as root
// runs the server as another user. initdb runs once on a machine, and its result is copied.
//
//	clients ──TCP──▶ Route ──Link──▶ unix socket of the server
//	clients ──TCP──▶ Bouncer.Route ──▶ PgBouncer ──▶ unix socket of the server
//	standby ──TCP──▶ Replication ────▶ unix socket of its primary
//	this package ────────────────────▶ unix socket of the server
//
// The ports that clients use are held by this process for as long as the servers live: an address never
// changes, whatever is killed and restarted. This package's own connections go past the proxies.
//
//   - Server: Kill, KillPostmaster, StopImmediate, Stop, Restart, Pause and Resume, Promote, Follow,
//     TerminateBackends, Set, SetClock (WithFaketime), FillDisk (WithDisk).
//   - Link, Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one client its own way.
//   - Bouncer: Kill, Restart.
//
// Servers write through to the disk (fsync). The processes end with the test and, on Linux, also when
// the test process is killed. The directories of a killed process stay in the temporary directory, and a
// disk stays mounted. The package needs a Unix system; WithDisk and WithFaketime need Linux. Everything
// is safe for concurrent use; operations on one server's process run one after another.
package postgrestest
