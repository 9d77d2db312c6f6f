package handover

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// hold is what a walk of the machine knows of the world: what was begun and not
// answered yet.
type hold struct {
	m       Machine
	lease   bool // is ours in the store
	trusted bool // and may be worked under
	running bool // what works under it may run
	doing   Effect
}

const none Effect = 255

// possible are the events that can come next.
func (h hold) possible() []Event {
	es := []Event{Host, Move, Keep, Resign, Quit, Stay, Asked}
	switch h.doing {
	case DoAcquire, DoAdopt:
		es = append(es, Won, WonInVain, NotWon)
	case DoTransfer:
		es = append(es, Transferred, NotTransferred, Stale)
	case DoRelease:
		es = append(es, Released)
	case DoOffer:
		es = append(es, OfferMade, OfferFailed)
	}
	if h.lease && h.m.Phase.Holds() {
		es = append(es, Lost)
	}
	if h.running && h.m.Phase >= Draining {
		es = append(es, Ended, Overdue)
	}
	switch h.m.Phase {
	case Opening:
		es = append(es, Opened, Ended, Pass)
	case Active:
		es = append(es, Reopen, Ended)
	case Inviting:
		es = append(es, Invited, Declined, Ended)
	case Asking:
		es = append(es, Invited, Declined)
	case Draining:
		es = append(es, Declined)
	case Yielding:
		es = append(es, YieldOver, Declined)
	case Offering:
		es = append(es, OfferOver)
	case Offered:
		es = append(es, Taken, OfferOver, OfferFailed)
	}
	return es
}

// after carries an event out in the model, and checks the rules.
func (h hold) after(t *testing.T, e Event, path string) hold {
	switch e {
	case Won, WonInVain:
		h.lease, h.trusted = true, true
	case Transferred, Released:
		h.lease = false
	case Lost:
		h.trusted = false
	case Opened:
		h.running = true
	case Ended, Reopen:
		h.running = false
	case OfferOver:
		if h.doing == DoOffer { // what comes of it is void
			h.doing = none
		}
	}
	if e == Won || e == WonInVain || e == NotWon || e == Transferred || e == NotTransferred || e == Stale || e == Released || e == OfferMade || e == OfferFailed {
		h.doing = none
	}
	var effects []Effect
	h.m, effects = h.m.Next(e)
	for _, f := range effects {
		switch f {
		case DoOpen:
			require.True(t, h.lease && h.trusted, "opened without the lease: %s", path)
		case DoLose:
			h.running = true // it may have begun
		case DoTransfer, DoRelease:
			require.False(t, h.running, "given up while something runs (I4): %s", path)
			require.Equal(t, none, h.doing, "two calls at a time: %s", path)
			h.doing, h.trusted = f, false
		case DoYield:
			require.Equal(t, Stopping, h.m.Phase, path)
			require.True(t, h.m.Yields, path)
			h.lease, h.trusted = false, false
		case DoAcquire, DoAdopt, DoOffer:
			require.Equal(t, none, h.doing, "two calls at a time: %s", path)
			h.doing = f
		case DoDrain:
			require.True(t, h.running, path)
		}
	}
	if h.m.Phase == Away {
		require.False(t, h.running, "away, and something runs: %s", path)
		require.False(t, h.lease, "away, and the lease is still ours: %s", path)
		require.Equal(t, none, h.doing, "away with a call under way: %s", path)
	}
	if h.running {
		require.Contains(t, []Phase{Active, Inviting, Draining, Yielding, Stopping}, h.m.Phase, path)
	}
	return h
}

// Every order of events that can happen, from every state that can be reached: the
// lease is never given up under work, one call of it is under way at a time,
// and nothing is forgotten.
func TestMachineExhaustively(t *testing.T) {
	for _, yields := range []bool{false, true} {
		start := hold{m: Machine{Yields: yields}, doing: none}
		seen := map[hold]string{start: "start"}
		todo := []hold{start}
		for len(todo) > 0 {
			h := todo[0]
			todo = todo[1:]
			for _, e := range h.possible() {
				path := fmt.Sprintf("%s > %d in %v", seen[h], e, h.m.Phase)
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
	h = h.after(t, Quit, "home")
	for range 20 {
		if h.m.Phase == Away {
			return true
		}
		var e Event
		switch {
		case h.doing == DoAcquire || h.doing == DoAdopt:
			e = NotWon
		case h.doing == DoTransfer:
			e = Transferred
		case h.doing == DoRelease:
			e = Released
		case h.doing == DoOffer:
			e = OfferFailed
		case h.m.Phase == Opening:
			e = Ended
		case h.m.Phase == Offered:
			e = OfferOver
		case h.m.Phase == Inviting, h.m.Phase == Asking:
			e = Declined
		case h.running && h.m.Phase >= Draining:
			e = Ended
		case h.m.Phase == Active:
			e = Quit
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
