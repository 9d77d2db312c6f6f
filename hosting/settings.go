package hosting

import "strconv"

// DropPolicy says what gives way when a buffer is full.
type DropPolicy uint8

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest DropPolicy = iota
	// DropOldest makes room by dropping the message that has waited longest.
	DropOldest
)

// String returns the name of the constant.
func (p DropPolicy) String() string { return nameOf(int(p), "DropNewest", "DropOldest") }

// Overdue says what becomes of a lease when what runs under it was told to stop, as
// planned, and still runs at its deadline (WithStop). Its context is done then, and it gets
// no message any more.
type Overdue uint8

const (
	// KeepLease keeps and renews the lease until what runs has stopped.
	KeepLease Overdue = iota
	// ReleaseAfterTTL waits for one more TTL and then releases the lease, though
	// something still runs: another node may start the next one, and only the fencing
	// token keeps the writes of the old one out. This node does not start another one
	// until it has stopped.
	ReleaseAfterTTL
)

// String returns the name of the constant.
func (o Overdue) String() string { return nameOf(int(o), "KeepLease", "ReleaseAfterTTL") }

func nameOf(n int, names ...string) string {
	if n >= 0 && n < len(names) {
		return names[n]
	}
	return strconv.Itoa(n)
}
