// Package revision notices when the revisions that a store answers with go back: its data was lost, or
// an older copy was put in place.
//
//	m := h.Mark()
//	at, err := ask(ctx)
//	err = h.Answered(m, at, setback)
//
// A linearizable answer is of no lower revision than any that was told before it was asked for. Of
// answers that are under way at once the order says nothing, hence the marks.
package revision

import (
	"sync"
	"sync/atomic"
)

// At is where a store's history is: at a number, which grows for ever, of a cluster.
type At struct {
	Cluster uint64 // 0: not told
	Number  int64
}

// Mark is what was known before a request was sent.
type Mark struct {
	Highest int64
	Age     int // counts clusters, and histories that were accepted
}

// History is what is known of a store's. The zero value knows nothing. It is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	cluster  uint64          // 0: no answer yet
	former   map[uint64]bool // clusters that this one came after
	known    Mark
	lost     error // the history went back, and that is not over
	accepted int
}

// Mark returns what is known now.
func (h *History) Mark() Mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known
}

// Answered takes up a linearizable answer to a request sent after m. The error is what setback makes of
// where the history is and was, from when it went back until that is over. again: a cluster that another
// had come after answers.
func (h *History) Answered(m Mark, at At, setback func(at, was At, again bool) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lost != nil:
		return h.lost
	case at.Cluster == 0 || m.Age != h.known.Age: // nothing is known, or it is late
		return nil
	case h.cluster == 0:
		h.cluster = at.Cluster
	case at.Cluster != h.cluster && !h.former[at.Cluster] && at.Number > h.known.Highest:
		h.succeededLocked(at.Cluster)
	case at.Cluster != h.cluster, at.Number < m.Highest:
		h.lost = setback(at, At{h.cluster, h.known.Highest}, h.former[at.Cluster])
		return h.lost
	}
	h.known.Highest = max(h.known.Highest, at.Number)
	return nil
}

// succeededLocked: another cluster has taken the place of the one before.
func (h *History) succeededLocked(cluster uint64) {
	if h.former == nil {
		h.former = map[uint64]bool{}
	}
	h.former[h.cluster] = true
	h.cluster = cluster
	h.known.Age++
}

// Heard takes up what says nothing of the present, such as a member's own answer, and was asked for at
// that age. It reports whether that casts a doubt: it may be behind, or have gone back.
func (h *History) Heard(age int, at At) (doubt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case at.Cluster == 0 || age != h.known.Age || h.lost != nil || h.cluster == 0:
		return false
	case at.Cluster != h.cluster:
		return true
	}
	doubt = at.Number < h.known.Highest
	h.known.Highest = max(h.known.Highest, at.Number)
	return doubt
}

// Reached reports whether at includes all that was known by m, of the same history.
func (h *History) Reached(m Mark, at At) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return at.Cluster == h.cluster && m.Age == h.known.Age && at.Number >= m.Highest
}

// Lost returns the error of Answered while the history is not to be gone on with.
func (h *History) Lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// Mend goes on at a linearizable answer if all to come is above all that was seen; else it returns the
// error of Answered.
func (h *History) Mend(at At) (mended bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil || at.Number < h.known.Highest || h.former[at.Cluster] {
		return false, h.lost
	}
	if at.Cluster != h.cluster {
		h.succeededLocked(at.Cluster)
	}
	h.lost, h.known = nil, Mark{at.Number, h.known.Age + 1}
	return true, nil
}

// Accept goes on with what stands by a linearizable answer to a request sent after m: after is the
// highest that was seen. It does nothing if the history is in order, or was accepted meanwhile.
func (h *History) Accept(m Mark, at At) (after int64, accepted bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Age != h.known.Age || h.lost == nil && at.Cluster == h.cluster && at.Number >= m.Highest {
		return 0, false, h.lost
	}
	after = h.known.Highest
	h.cluster, h.former, h.lost, h.known = at.Cluster, nil, nil, Mark{at.Number, h.known.Age + 1}
	h.accepted++
	return after, true, nil
}

// Accepted is how often Accept did something.
func (h *History) Accepted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accepted
}

// Seen is the highest revision that a Store has seen, where the server issues none below what it is told
// of. The zero value has seen none. It is safe for concurrent use.
type Seen struct{ highest, accepted atomic.Int64 }

// Saw notes a revision.
func (s *Seen) Saw(rev int64) {
	for was := s.highest.Load(); rev > was && !s.highest.CompareAndSwap(was, rev); was = s.highest.Load() {
	}
}

// Highest is the highest that was noted since Accept.
func (s *Seen) Highest() int64 { return s.highest.Load() }

// Accept forgets what was seen. Accepted counts it first: what another server answers from then on comes
// to Keepers that know of it.
func (s *Seen) Accept() {
	s.accepted.Add(1)
	s.highest.Store(0)
}

// Accepted is how often Accept was called.
func (s *Seen) Accepted() int { return int(s.accepted.Load()) }
