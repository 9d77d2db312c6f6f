// Command torture breaks a cluster of real processes from outside, on PostgreSQL or on a file of
// SQLite, and judges from what they noted whether anything ever ran twice:
//
//	go run -C test/stores ./torture -store postgres|sqlite [-for 5m] [-seed N] [-nodes 4] [-ttl 2s]
//	                                [-rate 25] [-storm 12s] [-faults 16] [-proxies] [-v]
//
// What it does, and what it judges by, stands in package torture of the library's module. What is
// done to the stores besides:
//
//   - postgres: a primary and a synchronous standby, both with fsync. The primary is killed, stopped
//     at once or in order, loses its first process, its clients, or its network, is paused, or is
//     followed by its standby, which then has it for a standby; the standby is paused, or cut off
//     from its primary, so that no commit ends. Nodes bound their transactions as docs/postgres.md
//     says, remember accounts by backends/postgres/entities, and write behind postgres.Guard.
//   - sqlite: nodes are processes on one file. Another program takes the write lock and keeps it,
//     keeps a transaction that reads, so that the log can't be emptied, or writes all the time, and
//     empties the log in between. A node is cut off from the file: its calls hang, and those of the
//     others don't. Nodes write behind sqlite.Guard, in the file of the leases.
//
// What nodes write goes to a table, under a lock for each name, so that its positions are the order
// of the commits. That table is the history that is judged. No overlap is laid to the store's
// account: what these stores have confirmed they must keep.
//
// PostgreSQL's programs must be installed (package postgrestest).
package main

import "github.com/holdfast-go/holdfast/test/torture/torture"

func main() { torture.Main(overPostgres, overSQLite) }
