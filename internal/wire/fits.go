package wire

import "github.com/holdfast-go/holdfast/lease"

// Fits reports whether the names by which the sender of one of this package's
// messages calls itself are as long as names may be: lease.MaxName bytes each.
func Fits(msg any) bool {
	m, ok := msg.(interface{ GetFrom() *Node })
	if !ok {
		return true
	}
	n, id := m.GetFrom(), ""
	if m, ok := msg.(interface{ GetId() string }); ok {
		id = m.GetId()
	}
	return max(len(n.GetAddress()), len(n.GetIncarnation()), len(id)) <= lease.MaxName
}
