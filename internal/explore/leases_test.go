package explore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// holders are nodes that acquire, transfer and release at will.
type holders struct {
	L                         Leases
	Losses, Unknowns, Crashes uint8
}

var (
	errTwo      = errors.New("two trust the lease")
	errNoRecord = errors.New("a lease is trusted that the store does not have")
)

func holderSpace(f Flaws, nodes int, losses, unknowns, crashes uint8) Space[holders] {
	var start holders
	for i := range nodes {
		start.L.H[i].Up = true
	}
	start.Losses, start.Unknowns, start.Crashes = losses, unknowns, crashes
	return Space[holders]{
		Start: []holders{start},
		Steps: func(w holders, tell func(Step[holders])) {
			step := func(label Label, sure bool, do func(*holders)) {
				n := w
				do(&n)
				n.L.Compress()
				tell(Step[holders]{Label: label, Sure: sure, Next: n})
			}
			w.L.Steps(f, nil, w.Unknowns > 0, func(label Label, sure, unsure bool, after Leases, err error) {
				n := w
				n.L = after
				if unsure {
					n.Unknowns--
				}
				n.L.Compress()
				tell(Step[holders]{Label: label, Sure: sure, Next: n, Err: err})
			})
			for i := range nodes {
				h, a := w.L.H[i], uint8(i+1)
				if !h.Up {
					continue
				}
				if h.Result != NoResult {
					step(Label{"hears", a, 0}, true, func(n *holders) { n.L.Hear(i) })
				}
				if h.Op == NoOp && h.Result == NoResult {
					if h.Claim == 0 {
						step(Label{"acquires", a, 0}, false, func(n *holders) { n.L.Begin(i, Acquire, 0, 0) })
						step(Label{"offers", a, 0}, false, func(n *holders) { n.L.H[i].Offer = true })
					} else {
						step(Label{"releases", a, 0}, true, func(n *holders) { n.L.Begin(i, Release, 0, 0) })
					}
					if h.Offer {
						step(Label{"adopts", a, 0}, false, func(n *holders) { n.L.Begin(i, Adopt, 0, 0) })
						step(Label{"offers no more", a, 0}, true, func(n *holders) { n.L.H[i].Offer = false })
					}
					for j := range nodes {
						if j != i && h.Alive {
							step(Label{"transfers", a, uint8(j + 1)}, false, func(n *holders) { n.L.Begin(i, Transfer, uint8(j+1), n.L.H[j].Session) })
						}
					}
				}
				if w.Losses > 0 {
					step(Label{"loses", a, 0}, false, func(n *holders) { n.Losses--; n.L.Lost(i) })
				}
				if w.Crashes > 0 {
					step(Label{"crashes", a, 0}, false, func(n *holders) { n.Crashes--; n.L.Crash(i) })
				}
			}
		},
		Key: Hash[holders],
		Check: func(w holders) error {
			alive := 0
			for i, h := range w.L.H {
				if !h.Alive {
					continue
				}
				if alive++; alive > 1 {
					return errTwo
				}
				if !w.L.Owns(i) || w.L.Rec.Token != h.Claim || w.L.Rec.Session != h.Session {
					return errNoRecord
				}
			}
			return nil
		},
		// Nobody claims it, and the store has given it up.
		Goal: func(w holders) bool {
			for _, h := range w.L.H {
				if h.Claim != 0 || h.Op != NoOp {
					return false
				}
			}
			return w.L.Rec.Owner == 0
		},
	}
}

// Whatever the holders do, whatever answers are lost and however late requests
// land: who trusts the lease has it, and nothing is kept for nobody.
func TestLeases(t *testing.T) {
	for _, b := range []struct {
		nodes                     int
		losses, unknowns, crashes uint8
	}{{2, 1, 1, 1}, {2, 0, 2, 0}, {3, 0, 1, 0}} {
		rep := Run(holderSpace(Flaws{}, b.nodes, b.losses, b.unknowns, b.crashes))
		t.Logf("%+v: %v", b, rep)
		if rep.Violation != nil {
			t.Fatal(rep.Violation)
		}
		require.True(t, rep.Whole)
		require.Greater(t, rep.States, 1000)
	}
}

func TestFlawsOfLeasesAreFound(t *testing.T) {
	for f, want := range map[Flaws]error{
		{TrustTooLong: true}:     errNoRecord,
		{BlindRelease: true}:     errNoRecord,
		{BlindTransfer: true}:    errNoRecord,
		{NoReconciliation: true}: ErrDeadEnd,
	} {
		rep := Run(holderSpace(f, 2, 1, 1, 0))
		require.NotNil(t, rep.Violation, "%+v", f)
		t.Logf("%+v: %v", f, rep.Violation)
		require.ErrorIs(t, rep.Violation, want, "%+v", f)
	}
}
