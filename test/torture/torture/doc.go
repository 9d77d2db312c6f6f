// Package torture breaks a cluster of real processes from outside, and judges from
// what they noted whether anything ever ran twice:
//
//	go run ./test/torture [-for 5m] [-seed N] [-nodes 4] [-ttl 2s] [-rate 25]
//	                      [-storm 12s] [-faults 16] [-proxies] [-v]
//
// Nodes are processes, each in a network namespace of its own (where that is not
// permitted, or with -proxies, TCP proxies stand between them, which also delay,
// throttle and stall what is sent). Each hosts
// singletons and a sharded type, asks all of them at a rate, with numbered asks, and
// writes in their name to a journal in etcd, a cluster of three processes, on the
// condition that it still is the owner. A run goes in rounds:
//
//	storm ──▶ all is undone ──▶ every name is asked until it answers ──▶ calm ──▶ storm …
//	faults, several at a time    by every node, and timed                 planned moves only
//
// The seed fixes the rounds: which faults, of what, when in their storm, for how long.
// Who leads etcd, or hosts a name, when one comes is not in its hands.
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
//   - The fenced journal, by etcd's own history: no token is followed by a lower one.
//     Its writers do not ask whether they may.
//   - I5: what was asked in calm is handled once, and in order. Where a move said that it
//     could not keep order that is counted apart.
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
// Linux; etcd is built on first use (package etcdtest).
package torture
