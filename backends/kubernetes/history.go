package kubernetes

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/store"
)

// history notices when resourceVersions go back, as after etcd was restored from a copy. Every answer
// that has the version of a write, or of a listing, is above all that was answered before it was asked for.
type history struct {
	mu       sync.Mutex
	seen     store.Token // the highest version
	wrote    store.Token // of this Store's writes
	age      int         // counts how often seen went back
	lost     error       // store.ErrSetback, while that is not over
	accepted int
}

// mark is what was known before a request was sent.
type mark struct {
	seen store.Token
	age  int
}

// begin is the beginning of every request but those of Watch that follow on one. While the history is
// lost it looks whether that is over.
func (o *objects) begin(ctx context.Context) (mark, error) {
	h := &o.history
	m, lost := h.mark()
	if lost == nil {
		return m, nil
	}
	now, err := o.revision(ctx)
	if err != nil {
		return m, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.age == m.age && now >= h.seen {
		h.lost = nil
	}
	return mark{h.seen, h.age}, h.lost
}

func (h *history) mark() (mark, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return mark{h.seen, h.age}, h.lost
}

// answered takes up the version that the answer to a request has which was sent after m, and may have been
// a write. The error is store.ErrSetback.
func (h *history) answered(m mark, version store.Token, write bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.age == h.age && h.lost == nil && version < m.seen {
		h.lost = fmt.Errorf("%w: it answers with resourceVersion %d after %d: etcd was restored from an older copy, or "+
			"the address leads to another cluster; see docs/kubernetes.md", store.ErrSetback, version, m.seen)
	}
	if h.lost != nil || m.age != h.age {
		return h.lost
	}
	h.seen = max(h.seen, version)
	if write {
		h.wrote = max(h.wrote, version)
	}
	return nil
}

// heard takes up the version of an object as it was read, which says nothing of the present.
func (h *history) heard(m mark, version store.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.age == h.age {
		h.seen = max(h.seen, version)
	}
}

// accept goes on with what stands.
func (o *objects) accept(ctx context.Context) error {
	h := &o.history
	m, _ := h.mark()
	now, err := o.revision(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.age != h.age || h.lost == nil && now >= m.seen {
		return h.lost
	}
	h.seen, h.wrote, h.lost = now, 0, nil
	h.age++
	h.accepted++
	return nil
}

// latest is the latest write of this Store.
func (h *history) latest() store.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrote
}
