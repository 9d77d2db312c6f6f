package singleton

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// instead makes a machine that does something else at one event in some phases.
func instead(e event, in []Phase, do func(m machine) (machine, []effect)) func(machine, event) (machine, []effect) {
	return func(m machine, got event) (machine, []effect) {
		if got == e && slices.Contains(in, m.phase) {
			return do(m)
		}
		return m.next(got)
	}
}

// without makes a machine that forgets an effect.
func without(f effect, after Phase) func(machine, event) (machine, []effect) {
	return func(m machine, e event) (machine, []effect) {
		was := m.phase
		m, effects := m.next(e)
		if was == after {
			effects = slices.DeleteFunc(slices.Clone(effects), func(x effect) bool { return x == f })
		}
		return m, effects
	}
}

// to has the lease's machine go to a phase.
func (m machine) to(p handover.Phase, effects ...effect) (machine, []effect) {
	m.hold.Phase, m.phase = p, phases[p]
	return m, effects
}

func ignored(m machine) (machine, []effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []struct {
	what  string
	model xmodel
	want  error
	large bool // not for the race detector
}{
	{"the lease is released before the child has ended", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(unreachable, []Phase{Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Releasing, handover.DoRelease) })}, errI4, false},
	{"the lease is transferred while the child runs", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Invited, []Phase{Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Transferring, handover.DoTransfer) })}, errI4, false},
	{"a planned end that is overdue gives the lease up at once", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Overdue, []Phase{HandingOver}, func(m machine) (machine, []effect) { return m.to(handover.Stopping, handover.DoYield) })}, errI4, false},
	{"an unknown transfer is taken for refused, and the child started again", xmodel{nodes: 2, bounds: xbudget{Wishes: 1, Unknowns: 1}}, errI1, false},
	{"an unknown transfer is taken for done", xmodel{nodes: 2, bounds: xbudget{Wishes: 1, Unknowns: 1}}, explore.ErrDeadEnd, true},
	{"what was handed over is not adopted by a write", xmodel{nodes: 2, prefers: true, bounds: xbudget{Unknowns: 1}}, errI1, false},
	{"the state of a lease that was not adopted is taken", xmodel{nodes: 2, prefers: true, bounds: xbudget{Unknowns: 1, Losses: 1}}, errOld, true},
	{"a lost 'off' leaves a node with its offer for ever", xmodel{nodes: 2, bounds: xbudget{Links: 1, Wishes: 1}, next: without(waitFree, Offering)}, explore.ErrDeadEnd, false},
	{"the gate does not look at the lease", xmodel{nodes: 2, bounds: xbudget{Losses: 1}}, errI1, false},
	{"a loss is not heard while the child runs", xmodel{nodes: 2, bounds: xbudget{Losses: 1}, next: instead(handover.Lost, []Phase{Active}, ignored)}, explore.ErrDeadEnd, false},
	{"what is won by a node that is to stop is kept", xmodel{nodes: 2, bounds: xbudget{Wishes: 1},
		next: instead(handover.Won, []Phase{Acquiring}, func(m machine) (machine, []effect) {
			if m.closing() {
				m.hold.Phase, m.phase = handover.Away, Closed
				return m, nil
			}
			return m.next(handover.Won)
		})}, explore.ErrDeadEnd, false},
	{"who is refused does not wait", xmodel{nodes: 2, bounds: xbudget{Wishes: 1}, next: without(waitFree, Acquiring)}, explore.ErrDeadEnd, false},
	{"a child that can't be made is not tried again", xmodel{nodes: 2, bounds: xbudget{Ends: 1}, next: without(startBackoff, Starting)}, explore.ErrDeadEnd, false},
	{"no answer is waited for in vain", xmodel{nodes: 2, bounds: xbudget{Wishes: 1}, next: instead(unreachable, []Phase{Inviting}, ignored)}, explore.ErrDeadEnd, false},
	{"a new offer is waited for in vain", xmodel{nodes: 2, bounds: xbudget{Wishes: 1, Links: 1}}, explore.ErrDeadEnd, false},
	{"the store releases blindly", xmodel{nodes: 2, bounds: xbudget{Losses: 1}, flaws: explore.Flaws{BlindRelease: true}}, errI2, false},
	{"the store transfers blindly", xmodel{nodes: 2, prefers: true, bounds: xbudget{Losses: 1, Unknowns: 1}, flaws: explore.Flaws{BlindTransfer: true}}, errI1, true},
	{"a holder trusts for longer than the store does", xmodel{nodes: 2, flaws: explore.Flaws{TrustTooLong: true}}, errI1, false},
	{"nobody releases what nobody claims", xmodel{nodes: 2, bounds: xbudget{Unknowns: 1, Wishes: 1}, flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, true},
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
