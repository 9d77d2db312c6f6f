package sharding

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
)

// to has a machine go to a phase.
func to(m handover.Machine, p handover.Phase, effects ...handover.Effect) (handover.Machine, []handover.Effect) {
	return ofShards{}.At(m, p), effects
}

func ignored(m handover.Machine) (handover.Machine, []handover.Effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []xplanted{
	world.Plant("the lease is released before the entities have ended", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Quit, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoRelease)
		})}, world.ErrI4, false),
	world.Plant("the lease is transferred while entities run", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1},
		Instead: world.Instead(ofShards{}, handover.Invited, []handover.Phase{handover.Inviting}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Transferring, handover.DoTransfer)
		})}, world.ErrI4, false),
	world.Plant("entities that are overdue are left at once", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Overdue, []handover.Phase{handover.Draining}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Stopping, handover.DoYield)
		})}, world.ErrI4, false),
	world.Plant("an unknown transfer is taken for refused, and what ran begun again", xmodel{Owner: ofShards{}, Nodes: 2,
		Bounds: xbudget{Orders: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("an unknown transfer is taken for done", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1, Unknowns: 1}},
		explore.ErrDeadEnd, false),
	world.Plant("what was handed over is not adopted by a write", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("the states of a lease that was not adopted are taken", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1,
		Orders: 2}}, world.ErrOld, true),
	world.Plant("a lost 'off' leaves a node with its offer for ever", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 1}},
		explore.ErrDeadEnd, false),
	world.Plant("an order to host is taken for the lease", xmodel{Owner: ofShards{}, Nodes: 2}, world.ErrI1, false),
	world.Plant("the gate does not look at the lease", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1}}, world.ErrI1, false),
	world.Plant("a loss is not heard while entities run", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Instead: world.Instead(ofShards{}, handover.Lost, []handover.Phase{handover.Active}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("what is won by a node that gives up is kept", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofShards{}, handover.Won, []handover.Phase{handover.Acquiring}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			if m.Quitting {
				return to(m, handover.Away)
			}
			return m.Next(handover.Won)
		})}, explore.ErrDeadEnd, false),
	world.Plant("no answer is waited for in vain", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Orders: 1}}, explore.ErrDeadEnd, false),
	world.Plant("a lost shard is forgotten at once", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1},
		Instead: world.Instead(ofShards{}, handover.Lost, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoLose, handover.DoRelease)
		})}, world.ErrI4, false),
	world.Plant("the store releases blindly", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Losses: 1},
		Flaws: explore.Flaws{BlindRelease: true}}, world.ErrI2, false),
	world.Plant("the store transfers blindly", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Orders: 2, Unknowns: 1},
		Flaws: explore.Flaws{BlindTransfer: true}}, world.ErrI1, true),
	world.Plant("a host trusts for longer than the store does", xmodel{Owner: ofShards{}, Nodes: 2, Flaws: explore.Flaws{TrustTooLong: true}}, world.ErrI1, false),
	world.Plant("nobody releases what nobody claims", xmodel{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Orders: 1},
		Flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, false),
}

func TestExploreFindsPlantedMistakes(t *testing.T) { world.Find(t, planted) }
