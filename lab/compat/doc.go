// Package compat runs nodes of the last release of the library beside nodes of this version:
// what one writes into records (leases, members, shards, the host of a singleton) and sends
// (mail, asks, hand-overs, state) the other must understand, because a cluster is upgraded
// node by node, and may go back by one version (docs/operations.md).
//
// The release is the last version that is tagged in the repository's history. Before the
// first one, and in a clone without tags, the test compares nothing: it prints one line and
// passes. Each version's nodes are those of its own lab/nodes. So their settings, orders and
// journals keep their form from one release to the next; a release may add fields to the JSON.
package compat
