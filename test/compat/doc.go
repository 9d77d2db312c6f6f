// Package compat runs nodes of an older version of the library beside nodes of this one:
// what one writes into records (leases, members, shards, the host of a singleton) and
// sends (mail, asks, hand-overs, state) the other must understand, because a cluster is
// upgraded node by node, and may go back by one version (docs/operations.md).
//
// The file landed has the commit that this version must understand. It is built from the
// history of the repository; in a clone that lacks it the test is skipped, and says so.
// The node (package peer) has one source for both, so it uses only what both export.
package compat
