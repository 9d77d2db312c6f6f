package sharding

import (
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outlet"
)

// This file is what stands for entities in protoactor's registry.

// Ref returns a PID of the entity id that may be kept, given to actors of other
// nodes, not watched, and sent to, wherever the entity is, runs or not. From
// other nodes it carries what protoactor's remote does, their own Regions carry what
// package remoting knows as well. It works while this Region does, and the name of each
// id is kept until then, about 150 bytes. Those of one id are Equal. Errors: lease.ErrInvalid for a bad id, ErrClosed.
func (r *Region) Ref(id string) (*actor.PID, error) {
	if !r.made() {
		return nil, errUnmade
	}
	if err := ValidateEntityID(id); err != nil {
		return nil, err
	}
	if r.over.Load() {
		return nil, r.closed()
	}
	return r.ref(id), nil
}

// ref registers the PID that it returns: protoactor asks no one about a PID of its own
// address that is not in its registry. All that is kept is its name. A Region that has
// ended registers none: the name may be the next one's, and would stay.
func (r *Region) ref(id string) *actor.PID {
	name := r.names.Refs + id
	registry := r.system.ProcessRegistry
	if p, _ := registry.GetLocal(name); p != actor.Process(r.refs) && !r.over.Load() {
		bucket := registry.LocalPIDs.GetBucket(name)
		bucket.Upsert(name, actor.Process(r.refs), func(taken bool, by, own any) any {
			if taken && r.over.Load() {
				return by
			}
			return own
		})
		if r.over.Load() { // forgetRefs may have been before
			bucket.RemoveCb(name, func(_ string, p any, _ bool) bool { return p == actor.Process(r.refs) })
		}
	}
	return actor.NewPID(registry.Address, name)
}

// forgetRefs takes out of the registry what ref put there.
func (r *Region) forgetRefs() {
	for _, bucket := range r.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		var names []string
		bucket.IterCb(func(name string, p any) {
			if p == actor.Process(r.refs) {
				names = append(names, name)
			}
		})
		for _, name := range names {
			bucket.Remove(name)
		}
	}
}

// refProcess is what all Refs of a Region stand for.
type refProcess struct{ noActor }

// SendUserMessage implements actor.Process.
func (p *refProcess) SendUserMessage(pid *actor.PID, message any) {
	id, ok := strings.CutPrefix(pid.Id, p.r.names.Refs)
	if !ok || p.r.over.Load() || !sendable(message) {
		outlet.Of(p.r.system).DeadLetter(pid, message)
		return
	}
	if batch, ok := actor.UnwrapEnvelopeMessage(message).(actor.MessageBatch); ok { // as protoactor's mailboxes do
		for _, m := range batch.GetMessages() {
			p.SendUserMessage(pid, m)
		}
	}
	p.r.deliver(id, message)
}
