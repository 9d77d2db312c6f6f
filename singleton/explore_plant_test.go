package singleton

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
)

// to has the lease's machine go to a phase.
func (m machine) to(p handover.Phase, effects ...effect) (machine, []effect) {
	return ofSingletons{}.At(m, p), effects
}

func ignored(m machine) (machine, []effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []xplanted{
	world.Plant("the lease is released before the child has ended", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, unreachable, []handover.Phase{handover.Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Releasing, handover.DoRelease) })}, world.ErrI4, false),
	world.Plant("the lease is transferred while the child runs", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Invited, []handover.Phase{handover.Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Transferring, handover.DoTransfer) })}, world.ErrI4, false),
	world.Plant("a planned end that is overdue gives the lease up at once", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Overdue, []handover.Phase{handover.Draining}, func(m machine) (machine, []effect) { return m.to(handover.Stopping, handover.DoYield) })}, world.ErrI4, false),
	world.Plant("an unknown transfer is taken for refused, and what ran begun again", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("an unknown transfer is taken for done", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Unknowns: 1}}, explore.ErrDeadEnd, true),
	world.Plant("what was handed over is not adopted by a write", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1}}, world.ErrI1, false),
	world.Plant("the states of a lease that was not adopted are taken", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}}, world.ErrOld, true),
	world.Plant("a lost 'off' leaves a node with its offer for ever", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Links: 1, Wishes: 1}, Instead: world.Without(ofSingletons{}, waitFree, handover.Offering)}, explore.ErrDeadEnd, false),
	world.Plant("the gate does not look at the lease", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}}, world.ErrI1, false),
	world.Plant("a loss is not heard while the child runs", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Instead: world.Instead(ofSingletons{}, handover.Lost, []handover.Phase{handover.Active}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("what is won by a node that is to stop is kept", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Won, []handover.Phase{handover.Acquiring}, func(m machine) (machine, []effect) {
			if m.closing() {
				m.hold.Phase, m.phase = handover.Away, Closed
				return m, nil
			}
			return m.next(handover.Won)
		})}, explore.ErrDeadEnd, false),
	world.Plant("who is refused does not wait", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1}, Instead: world.Without(ofSingletons{}, waitFree, handover.Acquiring)}, explore.ErrDeadEnd, false),
	world.Plant("a child that can't be made is not tried again", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Ends: 1}, Instead: world.Without(ofSingletons{}, startBackoff, handover.Opening)}, explore.ErrDeadEnd, false),
	world.Plant("no answer is waited for in vain", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1}, Instead: world.Instead(ofSingletons{}, unreachable, []handover.Phase{handover.Inviting}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("the store releases blindly", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Flaws: explore.Flaws{BlindRelease: true}}, world.ErrI2, false),
	world.Plant("the store transfers blindly", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Unknowns: 1}, Flaws: explore.Flaws{BlindTransfer: true}}, world.ErrI1, true),
	world.Plant("a holder trusts for longer than the store does", xmodel{Owner: ofSingletons{}, Nodes: 2, Flaws: explore.Flaws{TrustTooLong: true}}, world.ErrI1, false),
	world.Plant("records without a claim are not released", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}, Flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, true),
}

func TestExploreFindsPlantedMistakes(t *testing.T) { world.Find(t, planted) }
