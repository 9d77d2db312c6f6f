// Package memory keeps leases in the memory of one process.
//
// It is meant for tests, for examples, and for programs that are one process:
// every Keeper that is to compete for a name must be given the same *Store
// value. Nothing is written anywhere. A new Store begins again with token 1, so
// its tokens must not fence data that outlives the process.
//
// # What it promises
//
// A Store is linearizable: every operation happens at one moment, under one
// mutex. Time is the machine's monotonic clock, read once per operation,
// and every operation first applies the expiries that are due, the earliest
// first:
//
//	OpenSession ─▶ session ──now ≥ deadline──▶ expired: its records are gone from that moment,
//	                │  ▲                        and a timer tells watchers, not the next call
//	                │  └─ Renew, OpenSession: deadline = now + granted TTL
//	                └──── CloseSession ───────▶ closed: its records are gone
//
// Tokens and the revisions of deletions come from one counter, so no token ever
// comes twice, for whatever name and whatever became of its earlier records,
// and a deletion's revision lies strictly between the tokens around it.
//
// # What it costs
//
// There is no goroutine: a timer is pending only while a watch is open and a
// session is open, and a Store without references is garbage. Renewing a
// session costs O(log sessions) whatever it holds, an expiry O(1) per record
// and watcher. List and the snapshot of Watch look at every name of the Store
// and hold the mutex for that, but never while they yield.
//
// A watcher that is slow is not waited for. Changes wait for it in a queue of
// its own, bounded; when that is full its iteration ends
// with ErrWatchOverrun, and it watches again for a new snapshot.
package memory
