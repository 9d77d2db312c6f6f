// Package torture breaks a cluster of real processes from outside, over any store of leases,
// and judges from what they noted whether anything ever ran twice. A program that tortures
// calls Main with the stores that it has, in each of its processes; `go run -C lab . run torture`
// is that of etcd:
//
//	go run … [-store NAME] [-for 5m] [-seed N] [-nodes 4] [-ttl 2s] [-rate 25]
//	         [-storm 12s] [-faults 16] [-proxies] [-v]
//
// Nodes are processes of the running program itself, each in a network namespace of its own
// (where that is not permitted, or with -proxies, TCP proxies stand between them, which also
// delay, throttle and stall what is sent). Each hosts singletons and a sharded type, asks all
// of them at a rate, with numbered asks, and writes in their name to a journal in the store,
// on the condition that it still is the owner. A run goes in rounds:
//
//	storm ──▶ all is undone ──▶ every name is asked until it answers ──▶ calm ──▶ storm …
//	faults, several at a time    by every node, and timed                 planned moves only
//
// The seed fixes the rounds: which faults, of what, when in their storm, for how long.
// Who leads the store, or hosts a name, when one comes is not in its hands.
//
// Everything is noted by the machine's one monotonic clock, in files that outlive
// kill -9: what passes a gate and the reading that let it pass, what is handled,
// which requests the store confirmed and when they were sent. An oracle that shares no
// code with the library judges it, a part after each round and all of it in the end:
//
//   - I1: every pass under a token is earlier than all passes under higher ones of its
//     name, and one token is one process's.
//   - I2: tokens grow with each change of owner.
//   - I3: nothing passes once its loss was told, nor later than the TTL, less the
//     margin, after the last request that the store confirmed to that process.
//   - The fenced journal, by the store's own history: no token is followed by a lower one.
//     Its writers do not ask whether they may.
//   - I5: what was asked in calm is handled once, and in order. Where a move said that it
//     could not keep order that is counted apart. A calm in which a node noted that a lease ran
//     out, as happens where the machine has no processor for it, is none: what is broken in it
//     is counted, and excused, in a tenth of the calms at the most, or in one of four.
//   - State: what an account begins with was left by an account before it, under a lower
//     token, and nobody else begins with it. Accounts are remembered, and stopped when
//     they are idle.
//   - I7: after a storm every name answers within the TTL and 5 s, and every node has
//     an answer of every name within the TTL and 20 s.
//   - No process ends that was not told to.
//
// Asks that an actor had when its lease had ended already are overruns: a process was
// stopped between the gate's look at the clock and the actor's. They are counted apart.
//
// It prints each fault, a table of them, the figures, and each violation with the
// lines that show it; it exits 1 if there is one, and 2 if it could not judge. It needs
// Linux.
//
// # What a store has to give
//
// A program has a Store for each kind (the example of the package is a whole one). That starts
// servers, in the process that tortures, and opens connections to them, in the nodes: all nodes
// get the same URL, but for the addresses, which are where a node reaches the servers over a
// network that is cut.
//
//   - Servers: where they listen (Addresses); what can be done to them (Troubles), such as to
//     kill and start them again, or to stop them for a while. Faults of the network between
//     nodes and servers are not among them: these are done here, for every store.
//   - Client: the store of leases, in all its capabilities (they are found by type); the guarded
//     write of what users would write, by the store's own guard; and, if the store has one, an
//     EntityStore beside it.
//   - History: every write that was applied, in the order of the store, best from a table or log
//     that is only ever appended to, with a position that grows under the lock that the write is
//     made under. If the store keeps what became of the records of leases, that too: then an
//     overlap that came of a session that the store confirmed and ended is told apart.
//
// A store without servers, as a file is, has no Addresses, and no Troubles but its own.
//
// Its tests are Short, which no violation may come of but those that are Slow, and Planted,
// which must find some of each kind.
package torture
