package sharding

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// hold is what a walk of the machine knows of the world: what was begun and not
// answered yet.
type hold struct {
	m       machine
	lease   bool // is ours in the store
	trusted bool // and may be worked under
	running bool // entities may run
	doing   effect
}

const none effect = 255

// possible are the events that can come next.
func (h hold) possible() []event {
	es := []event{host, move, quit, stay, asked}
	switch h.doing {
	case doAcquire, doAdopt:
		es = append(es, won, notWon)
	case doTransfer:
		es = append(es, transferred, notTransferred, stale)
	case doRelease:
		es = append(es, released)
	case doOffer:
		es = append(es, offerMade, offerFailed)
	}
	if h.lease && h.m.phase.holds() {
		es = append(es, lost)
	}
	if h.running && h.m.phase >= Draining {
		es = append(es, drained, overdue)
	}
	switch h.m.phase {
	case Inviting, Asking:
		es = append(es, invited, declined)
	case Draining:
		es = append(es, declined)
	case Yielding:
		es = append(es, yieldOver, declined)
	case Offered:
		es = append(es, taken, offerOver)
	}
	return es
}

// after carries an event out in the model, and checks the rules.
func (h hold) after(t *testing.T, e event, path string) hold {
	switch e {
	case won:
		h.lease, h.trusted = true, true
	case transferred, released:
		h.lease = false
	case lost:
		h.trusted = false
	case drained:
		h.running = false
	}
	if e == won || e == notWon || e == transferred || e == notTransferred || e == stale || e == released || e == offerMade || e == offerFailed {
		h.doing = none
	}
	var effects []effect
	h.m, effects = h.m.next(e)
	for _, f := range effects {
		switch f {
		case doOpen:
			require.True(t, h.lease && h.trusted, "opened without the lease: %s", path)
			h.running = true
		case doTransfer, doRelease:
			require.False(t, h.running, "given up while entities run (I4): %s", path)
			require.Equal(t, none, h.doing, "two calls at a time: %s", path)
			h.doing, h.trusted = f, false
		case doYield:
			require.Equal(t, Stopping, h.m.phase, path)
			require.True(t, h.m.yields, path)
			h.lease, h.trusted = false, false
		case doAcquire, doAdopt, doOffer:
			require.Equal(t, none, h.doing, "two calls at a time: %s", path)
			h.doing = f
		case doDrain:
			require.True(t, h.running, path)
		}
	}
	if h.m.phase == Away {
		require.False(t, h.running, "away, and entities run: %s", path)
		require.False(t, h.lease, "away, and the lease is still ours: %s", path)
		require.Equal(t, none, h.doing, "away with a call under way: %s", path)
	}
	if h.running {
		require.True(t, h.m.phase.runs(), "entities run in %v: %s", h.m.phase, path)
	}
	return h
}

// Every order of events that can happen, from every state that can be reached: the
// lease is never given up under entities, one call of it is under way at a time,
// and nothing is forgotten.
func TestMachineExhaustively(t *testing.T) {
	for _, yields := range []bool{false, true} {
		start := hold{m: machine{yields: yields}, doing: none}
		seen := map[hold]string{start: "start"}
		todo := []hold{start}
		for len(todo) > 0 {
			h := todo[0]
			todo = todo[1:]
			for _, e := range h.possible() {
				path := fmt.Sprintf("%s > %d in %v", seen[h], e, h.m.phase)
				next := h.after(t, e, path)
				if _, ok := seen[next]; !ok {
					seen[next] = path
					todo = append(todo, next)
				}
			}
		}
		require.Greater(t, len(seen), 25)
		// From everywhere the way leads back to where nothing is held.
		for h := range seen {
			require.True(t, comesHome(t, h), "stuck: %+v", h)
		}
	}
}

// comesHome: with answers that succeed, a node that quits holds nothing in the end.
func comesHome(t *testing.T, h hold) bool {
	h = h.after(t, quit, "home")
	for range 20 {
		if h.m.phase == Away {
			return true
		}
		var e event
		switch {
		case h.doing == doAcquire || h.doing == doAdopt:
			e = notWon
		case h.doing == doTransfer:
			e = transferred
		case h.doing == doRelease:
			e = released
		case h.doing == doOffer:
			e = offerFailed
		case h.m.phase == Offered:
			e = offerOver
		case h.m.phase == Inviting, h.m.phase == Asking:
			e = declined
		case h.running && h.m.phase >= Draining:
			e = drained
		case h.m.phase == Active:
			e = quit
		default:
			return false
		}
		h = h.after(t, e, "home")
	}
	return false
}

func TestPhaseNames(t *testing.T) {
	require.Len(t, phaseNames, int(Releasing)+1)
	require.Equal(t, "releasing", Releasing.String())
	require.Equal(t, "unknown", Phase(99).String())
}
