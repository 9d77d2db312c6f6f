package wire

import "github.com/asynkron/protoactor-go/actor"

// AddressOf returns pid as it travels; nil for nil.
func AddressOf(pid *actor.PID) *Address {
	if pid == nil {
		return nil
	}
	return &Address{Address: pid.Address, Id: pid.Id, RequestId: pid.RequestId}
}

// PID returns a new PID of that address, bound to no actor system yet; nil for
// nil.
func (x *Address) PID() *actor.PID {
	if x == nil {
		return nil
	}
	return &actor.PID{Address: x.Address, Id: x.Id, RequestId: x.RequestId}
}
