// Package partitions runs nodes with partitions as processes over a real store: they are killed,
// stopped and restarted one after the other, and join while there are 10 000 partitions. Beside them
// run the same nodes as programs are often written: a rendezvous hash over a list of members, without
// a lease of each partition.
//
//	go test -C lab ./partitions -v                                            the short form
//	HOLDFAST_NIGHTLY=1 go test -C lab ./partitions -v -run TestStorm -args -store postgres -seed 7 -for 5m
//	HOLDFAST_NIGHTLY=1 go test -C lab ./partitions -v -run TestJoin -args -store sqlite -many 10000
//
// Each process notes in a mapped file, by the machine's one clock, when an Own begins, that its lease
// was alive when it looked, and when Own ends. The judge reads these files:
//
//   - Every look under a token is earlier than all looks under higher tokens of its partition,
//     and one token is one process's.
//   - No lease is released or passed on while Own goes on.
//   - In the store's own history of what Own wrote behind the guard of its lease no token is
//     followed by a lower one.
//   - After each fault every partition is owned again in time.
package partitions
