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
// # The programs
//
// The server is the one that is installed: from the directory that HOLDFAST_POSTGRES_BIN names,
// from PATH, or from where Debian and others put it, the newest. Where it is missing the tests say
// so on standard error and skip; with HOLDFAST_CI=1 they fail. HOLDFAST_SKIP_POSTGRES=1 skips them
// in any case. PgBouncer and faketime are looked for when a test needs them.
//
// PostgreSQL refuses to run as root: a test that does runs it as the user postgres, or nobody.
// initdb runs once on a machine, and what it made is copied.
//
// # Who talks to whom
//
//	clients ──TCP──▶ Route ──Link──▶ unix socket of the server
//	clients ──TCP──▶ Bouncer.Route ──▶ PgBouncer ──Bouncer.Onward──▶ unix socket of the server
//	standby ──TCP──▶ Replication ────▶ unix socket of its primary
//	this package ────────────────────▶ unix socket of the server
//
// Servers listen on unix sockets in directories of their own. The ports that clients use are held
// by this process for as long as the servers live: an address never changes, whatever is killed
// and restarted, and no port can be lost to another process. This package's own connections go
// past the proxies: faults don't hinder them.
//
// # Faults
//
//   - Server: Kill, KillPostmaster, StopImmediate, Stop, Restart, Pause and Resume, Promote, Follow,
//     TerminateBackends, Set, SetClock (WithFaketime), FillDisk (WithDisk).
//   - Link, Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one client its own way.
//   - Bouncer: Kill, Restart, Pause and Resume, Point.
//
// Servers write through to the disk (fsync), as PostgreSQL does unless told otherwise.
//
// The processes end with the test and, on Linux, also when the test process is killed, paused ones
// too. Elsewhere a test process that dies without running its cleanups leaves them behind. The
// directories of a process that was killed stay in the temporary directory, and a disk stays
// mounted.
//
// The package needs a Unix system; WithDisk and WithFaketime need Linux. Everything is safe for
// concurrent use; operations on one server's process run one after another.
package postgrestest
