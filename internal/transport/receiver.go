package transport

import "github.com/holdfast-go/holdfast/internal/wire"

// receiver is the receiving half of a channel from one life of a peer.
type receiver struct {
	link  uint64 // the newest that was opened
	taken uint64 // the number of the last frame that was taken
}

// probe opens a link, and says how far everything was taken; false for a probe of an
// earlier link.
func (r *receiver) probe(m *wire.Probe) bool {
	if m.Link < r.link {
		return false
	}
	r.link = m.Link
	return true
}

// frame reports whether to take a frame: it is of the present link, and the next.
// So a frame that a link lost is missed, and none behind it is taken before it.
func (r *receiver) frame(m *wire.Frame) bool {
	if m.Link != r.link || m.Number != r.taken+1 {
		return false
	}
	r.taken = m.Number
	return true
}
