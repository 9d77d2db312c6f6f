// Package machine is a laboratory of real processes (Linux): what the checks in
// lab/nodes and lab/leases need to start processes, to stand between them, and to
// note what they see.
//
//   - Process: a child that dies with its parent, takes orders and tells reports over pipes; Place:
//     a network namespace that it may be in.
//   - Links: nodes reach each other through the TCP proxies of package faultlink, which delay,
//     throttle, hold back, cut and count.
//   - Now and Clock: the machine's one monotonic clock, by which the notes of all
//     processes compare.
//   - Journal: what a node notes, in a file in the memory of several processes, which outlives
//     kill -9.
package machine
