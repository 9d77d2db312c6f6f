package sharding

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// instead makes a machine that does something else at one event in some phases.
func instead(e handover.Event, in []handover.Phase, do func(m handover.Machine) (handover.Machine, []handover.Effect)) func(handover.Machine, handover.Event) (handover.Machine, []handover.Effect) {
	return func(m handover.Machine, got handover.Event) (handover.Machine, []handover.Effect) {
		if got == e && slices.Contains(in, m.Phase) {
			return do(m)
		}
		return m.Next(got)
	}
}

// to has a machine go to a phase.
func to(m handover.Machine, p handover.Phase, effects ...handover.Effect) (handover.Machine, []handover.Effect) {
	m.Phase = p
	return m, effects
}

func ignored(m handover.Machine) (handover.Machine, []handover.Effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []struct {
	what  string
	model xmodel
	want  error
	large bool // not for the race detector
}{
	{"the lease is released before the entities have ended", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Quit, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoRelease)
		})}, errI4, false},
	{"the lease is transferred while entities run", xmodel{nodes: 2, bounds: xbudget{Orders: 1},
		next: instead(handover.Invited, []handover.Phase{handover.Inviting}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Transferring, handover.DoTransfer)
		})}, errI4, false},
	{"entities that are overdue are left at once", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Overdue, []handover.Phase{handover.Draining}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Stopping, handover.DoYield)
		})}, errI4, false},
	{"an unknown transfer is taken for refused, and the shard opened again", xmodel{nodes: 2,
		bounds: xbudget{Orders: 1, Unknowns: 1}}, errI1, false},
	{"an unknown transfer is taken for done", xmodel{nodes: 2, bounds: xbudget{Orders: 1, Unknowns: 1}},
		explore.ErrDeadEnd, false},
	{"what was handed over is not adopted by a write", xmodel{nodes: 2, bounds: xbudget{Orders: 1, Unknowns: 1}}, errI1, false},
	{"the states of a lease that was not adopted are taken", xmodel{nodes: 2, bounds: xbudget{Unknowns: 1, Losses: 1,
		Orders: 2}}, errOld, true},
	{"a lost 'off' leaves a node with its offer for ever", xmodel{nodes: 2, bounds: xbudget{Orders: 1}},
		explore.ErrDeadEnd, false},
	{"an order to host is taken for the lease", xmodel{nodes: 2}, errI1, false},
	{"the gate does not look at the lease", xmodel{nodes: 2, bounds: xbudget{Losses: 1}}, errI1, false},
	{"a loss is not heard while entities run", xmodel{nodes: 2, bounds: xbudget{Losses: 1}, next: instead(handover.Lost,
		[]handover.Phase{handover.Active}, ignored)}, explore.ErrDeadEnd, false},
	{"what is won by a node that gives up is kept", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Won, []handover.Phase{handover.Acquiring}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			if m.Quitting {
				return to(m, handover.Away)
			}
			return m.Next(handover.Won)
		})}, explore.ErrDeadEnd, false},
	{"no answer is waited for in vain", xmodel{nodes: 2, bounds: xbudget{Links: 1, Orders: 1}}, explore.ErrDeadEnd, false},
	{"a lost shard is forgotten at once", xmodel{nodes: 2, bounds: xbudget{Losses: 1},
		next: instead(handover.Lost, []handover.Phase{handover.Active}, func(m handover.Machine) (handover.Machine, []handover.Effect) {
			return to(m, handover.Releasing, handover.DoLose, handover.DoRelease)
		})}, errI4, false},
	{"the store releases blindly", xmodel{nodes: 2, bounds: xbudget{Losses: 1},
		flaws: explore.Flaws{BlindRelease: true}}, errI2, false},
	{"the store transfers blindly", xmodel{nodes: 2, bounds: xbudget{Orders: 2, Unknowns: 1},
		flaws: explore.Flaws{BlindTransfer: true}}, errI1, true},
	{"a host trusts for longer than the store does", xmodel{nodes: 2, flaws: explore.Flaws{TrustTooLong: true}}, errI1, false},
	{"nobody releases what nobody claims", xmodel{nodes: 2, bounds: xbudget{Unknowns: 1, Orders: 1},
		flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, false},
}

// A model that finds nothing has to be one that would have.
func TestExploreFindsWhatIsPlanted(t *testing.T) {
	for _, p := range planted {
		if explore.Racing && p.large {
			continue
		}
		t.Run(p.what, func(t *testing.T) {
			p.model.plant = p.what
			rep := explore.Run(p.model.space())
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			t.Logf("%v\n%v", rep, rep.Violation)
			require.ErrorIs(t, rep.Violation, p.want)
			require.LessOrEqual(t, len(rep.Violation.Trace), 25)
		})
	}
}
