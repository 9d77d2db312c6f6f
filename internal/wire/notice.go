package wire

import "github.com/holdfast-go/holdfast/hosting"

var _ hosting.Undeliverable = (*Nack)(nil)

// Notice implements hosting.Undeliverable. The reasons have the same numbers there.
func (n *Nack) Notice() hosting.Notice {
	return hosting.Notice{Reason: hosting.Reason(n.GetReason()), Name: n.GetName(), Key: n.GetKey(), Type: n.GetType(), Detail: n.GetDetail()}
}
