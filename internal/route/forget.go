package route

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Forget drops all that was learnt by tokens, for those to come may be lower: the
// store's history went back, and what stands now was accepted. own is the token of
// the actor that is open here, if it works by what stands now; else 0. What waits
// here goes on as if it had been sent now; in which order that comes to what was
// under way is not known.
func (r *Router) Forget(own lease.Token) {
	if r.phase != open {
		own = 0
	}
	if r.path.used && !r.path.here || r.pending != nil {
		r.stats.Unordered++
	}
	r.own, r.floor = own, 0
	r.host, r.known = hop{}, false
	r.path, r.pending = path{}, nil
	waits := r.queue.take()
	first := false
	for _, it := range slices.Backward(waits) { // what is older than what came back stays so
		first = first || it.first
		it.first, it.under = first, 0
	}
	for _, it := range waits {
		if it.marker != nil {
			continue // who sent it gives up, or has forgotten it
		}
		if it.Wire != nil {
			e := &wire.Envelope{}
			proto.Merge(e, it.Wire)
			e.Token, it.Wire = 0, e
		}
		r.queue.add(it)
		r.dueBy(r.deadline(it))
	}
	r.flush()
}
