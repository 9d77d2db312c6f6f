// Package nodes is the laboratory's scenarios of nodes: processes that host singletons and shards over
// a real store, which are loaded, moved, killed, stopped and cut off, and judged from outside.
//
//	go run -C lab . run torture [-for 5m] [-seed N] [-store etcd|postgres|sqlite|redis]
//
// There is one node program. Its workers note in a journal, by the machine's one clock and in a file
// that outlives kill -9, what passes a gate, what is sent, handled and answered, what the store
// confirmed, and which state came from where. One oracle, which shares no code with the library, judges
// the journals and the store's own history:
//
//   - I1: every pass under a token is earlier than all passes under higher ones of its
//     name, and one token is one process's.
//   - I2: tokens grow with each change of owner.
//   - I3: nothing passes once its loss was noted, nor later than the TTL, less the
//     margin, after the last request that the store confirmed to that process.
//   - The fenced journal, by the store's own history: no token is followed by a lower one.
//   - I5: what is sent in calm is handled once, and in order. Where a move said that it
//     could not keep order that is counted apart. Where letters may be given up, no more are lost
//     than the product counted.
//   - State: what an account begins with was left by an account before it, under a lower
//     token, and no other begins with it.
//   - I7: after a storm every name answers within the TTL and 5 s, and every node has
//     an answer of every name within the TTL and 20 s.
//   - No process ends that was not told to.
//
// Scenarios are data: of storms (torture), of deaths, of planned moves under load, and of jobs that go
// into a fenced ledger (scheduler, bank); those of mail over slow links, reshard and restore are
// functions. A crew is servers, a network and nodes. Over namespaces links are cut; over proxies they
// are also delayed, throttled and stalled. A Store says how servers are started and troubled, how a node
// opens them, and what was written.
//
// In torture, overlaps are counted apart where the store ended a session that it had confirmed. A
// breach is excused in a calm in which a lease ran out, because the machine had no processor for its
// holder; at most a tenth of the calms may be excused.
package nodes
