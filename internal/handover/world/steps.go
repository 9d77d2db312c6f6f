package world

import (
	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// Stepper tells the steps of one state.
type Stepper[M, O comparable] struct {
	*Model[M, O]
	From World[M, O]
	tell func(explore.Step[World[M, O]])
}

func (x *Model[M, O]) steps(w World[M, O], tell func(explore.Step[World[M, O]])) {
	s := &Stepper[M, O]{x, w, tell}
	s.leases()
	for i := range x.Nodes {
		if w.L.H[i].Up {
			s.node(i)
			s.mail(i)
			x.Steps(s, i)
			s.fate(i)
		}
	}
	s.links()
}

// Step tells one: do changes a copy of the state. a and b are nodes, from 1.
func (s *Stepper[M, O]) Step(what string, a, b int, sure bool, do func(r *Run[M, O])) {
	r := &Run[M, O]{Model: s.Model, W: s.From}
	do(r)
	s.done(explore.Label{What: what, A: uint8(a), B: uint8(b)}, sure, r)
}

func (s *Stepper[M, O]) done(label explore.Label, sure bool, r *Run[M, O]) {
	if s.From.L.Rec != r.W.L.Rec {
		s.Recorded(r)
	}
	s.canon(&r.W)
	s.tell(explore.Step[World[M, O]]{Label: label, Sure: sure, Next: r.W, Err: r.err})
}

func (s *Stepper[M, O]) leases() {
	s.From.L.Steps(s.Flaws, s.refs(&s.From), s.From.Left.Unknowns > 0, func(label explore.Label, sure, unsure bool, after explore.Leases, err error) {
		r := &Run[M, O]{Model: s.Model, W: s.From, err: err}
		r.W.L = after
		if unsure {
			r.W.Left.Unknowns--
		}
		s.done(label, sure, r)
	})
}

// offersEnd reports whether an unused offer ends: it does unless that is what is planted.
func (x *Model[M, O]) offersEnd() bool {
	return x.Plant != "a lost 'off' leaves a node with its offer for ever"
}

// node tells what one node and its Keeper come to by themselves.
func (s *Stepper[M, O]) node(i int) {
	w := &s.From
	n, h, a := &w.N[i], &w.L.H[i], i+1
	m := s.Hold(n.M)
	if h.Result != explore.NoResult {
		s.Step("hears the store's answer", a, 0, true, func(r *Run[M, O]) { r.hear(i) })
	}
	if h.Loss {
		s.Step("is told of the loss", a, 0, true, func(r *Run[M, O]) {
			r.W.L.H[i].Loss = false
			if r.W.N[i].Term != 0 && !r.Alive(i) {
				r.Fire(i, handover.Lost)
			}
		})
	}
	if h.Offer && s.offersEnd() {
		s.Step("the Keeper's offer ends", a, 0, true, func(r *Run[M, O]) { r.W.L.H[i].Offer = false })
	}
	if n.Run != 0 && n.Told {
		s.Step("what runs ends", a, 0, true, func(r *Run[M, O]) { r.Ended(i, handover.Ended) })
	}
	if n.Run != 0 && n.Told && m.Offer {
		s.Step("what runs ends, and the offer is too old", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Aged = true; r.Ended(i, handover.Ended) })
	}
	if n.Due {
		s.Step("what runs is overdue", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Due = false; r.Fire(i, handover.Overdue) })
	}
	if n.Yield {
		s.Step("a TTL after it was shut off", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Yield = false; r.Fire(i, handover.YieldOver) })
	}
	if n.Making {
		s.Step("its offer is ready", a, 0, true, func(r *Run[M, O]) { r.offerReady(i) })
		if w.Left.Unknowns > 0 {
			s.Step("its offer fails", a, 0, false, func(r *Run[M, O]) {
				r.W.Left.Unknowns--
				r.W.N[i].Making = false
				r.Fire(i, handover.OfferFailed)
			})
			if m.Phase == handover.Offered {
				s.Step("its offer fails, and the last one is good still", a, 0, false, func(r *Run[M, O]) {
					r.W.Left.Unknowns--
					r.W.N[i].Making = false
				})
			}
		}
	}
	if m.Phase == handover.Offered {
		if s.offersEnd() {
			s.Step("its offer is over", a, 0, true, func(r *Run[M, O]) { r.Fire(i, handover.OfferOver) })
		}
		if w.L.Owns(i) {
			s.Step("sees that the record is its own", a, 0, true, func(r *Run[M, O]) { r.Fire(i, handover.Taken) })
		}
	}
	s.asks(i, m)
	for j := range s.Nodes {
		if n.Lost&Bit(j) != 0 {
			s.Step("is told that the link broke", a, j+1, true, func(r *Run[M, O]) { r.peerLost(i, j) })
		}
	}
}

// asks tells what becomes of an invitation of node i while it waits.
func (s *Stepper[M, O]) asks(i int, m handover.Machine) {
	w, n, a := &s.From, &s.From.N[i], i+1
	t := int(n.To) - 1
	if t < 0 || n.Inv == 0 {
		return
	}
	if m.Phase.Asks() && s.Prompt(i) && s.Plant != "no answer is waited for in vain" {
		s.Step("no answer to the invitation in time", a, t+1, true, func(r *Run[M, O]) { r.unanswered(i) })
	}
	if !m.Offer || !m.Phase.Waits() {
		return
	}
	if w.Q[i][t].N+w.Q[t][i].N == 0 && !w.N[t].Making {
		s.Step("asks for a fresh offer", a, t+1, false, func(r *Run[M, O]) { r.Send(i, n.To, Mail{Invite, n.Inv, 0}) })
	}
}

// unanswered: nothing came of whom node i asks.
func (r *Run[M, O]) unanswered(i int) {
	if !r.W.N[i].Again {
		r.Silent(r, i)
		return
	}
	r.Fire(i, handover.Declined)
}

func (r *Run[M, O]) peerLost(i, j int) {
	n := &r.W.N[i]
	n.Lost &^= Bit(j)
	r.PeerLost(r, i, j)
	if r.Hold(n.M).Phase.Asks() && n.Inv != 0 && int(n.To) == j+1 {
		r.unanswered(i)
	}
}

// fewLate is how many messages may be under way between a node and another, both
// ways, when a time that it waits for is over. With more of them it waits on: links
// are not so slow that a host fills one with invitations.
const fewLate = 2

// Prompt reports whether times that node i waits for can be over.
func (s *Stepper[M, O]) Prompt(i int) bool {
	for j := range s.Nodes {
		if s.From.Q[i][j].N+s.From.Q[j][i].N > fewLate {
			return false
		}
	}
	return true
}

// mail tells what i may receive.
func (s *Stepper[M, O]) mail(i int) {
	for j := range s.Nodes {
		q := s.From.Q[j][i]
		if m, ok := q.Pop(); ok {
			s.Step(s.name(m.Kind), j+1, i+1, true, func(r *Run[M, O]) { r.W.Q[j][i] = q; r.receive(i, j, m) })
			if s.From.Left.Links > 0 {
				s.Step("lost: "+s.name(m.Kind), j+1, i+1, false, func(r *Run[M, O]) { r.W.Left.Links--; r.W.Q[j][i] = q })
			}
		}
	}
}

// fate tells what may strike node i.
func (s *Stepper[M, O]) fate(i int) {
	w, h, a := &s.From, &s.From.L.H[i], i+1
	if w.Left.Losses > 0 && (h.Alive || h.Offer || h.Op != explore.NoOp || w.L.Owns(i)) {
		s.Step("its session is over", a, 0, false, func(r *Run[M, O]) { r.W.Left.Losses--; r.W.L.Lost(i) })
	}
	if w.Left.Crashes > 0 {
		s.Step("crashes", a, 0, false, func(r *Run[M, O]) {
			r.W.Left.Crashes--
			r.W.N[i] = Node[M, O]{}
			r.W.L.Crash(i)
			for j := range r.Nodes {
				r.W.Q[j][i] = explore.Queue[Mail]{}
				if r.W.L.H[j].Up && !r.Closed(r.W.N[j].M) {
					r.W.N[j].Lost |= Bit(i)
				}
			}
		})
	}
}

// links adds a step for each link that may break.
func (s *Stepper[M, O]) links() {
	w := &s.From
	if w.Left.Links == 0 {
		return
	}
	for i := range s.Nodes {
		for j := range i {
			if !w.L.H[i].Up || !w.L.H[j].Up || w.Q[i][j].N+w.Q[j][i].N == 0 && !s.Links(w, i, j) {
				continue
			}
			s.Step("the link breaks", j+1, i+1, false, func(r *Run[M, O]) {
				r.W.Left.Links--
				r.W.Q[i][j], r.W.Q[j][i] = explore.Queue[Mail]{}, explore.Queue[Mail]{}
				r.W.N[i].Lost |= Bit(j)
				r.W.N[j].Lost |= Bit(i)
			})
		}
	}
}
