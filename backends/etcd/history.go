package etcd

import (
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/store"
)

// history notices when etcd's history goes back: its data was lost, or an older copy
// was put in place. Every answer tells the cluster's ID and a revision.
//
// A revision that some member has told of was agreed on by a majority. So an answer
// that is linearizable, as those of the KV service are here, and was asked for later
// can't be of a lower one. Of answers that are under way at once the order says
// nothing, hence the marks. Answers of watches and keepalives are a member's own,
// which may lag: they raise what was seen, and can only cast a doubt.
type history struct {
	mu       sync.Mutex
	cluster  uint64          // 0: no answer yet
	former   map[uint64]bool // clusters that this one came after
	highest  int64           // revision
	lost     error           // the history went back, and that is not over
	age      int             // counts clusters, and histories that were accepted
	accepted int
	probed   mark      // what a watch has to have told of to have answered the last request for progress
	asked    time.Time // when that was begun
}

// mark is what was known before a request was sent.
type mark struct {
	highest int64
	age     int
}

func (h *history) mark() mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return mark{h.highest, h.age}
}

// answered takes up the header of a linearizable answer to a request sent after m.
// The error is store.ErrSetback.
func (h *history) answered(m mark, hd *pb.ResponseHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lost != nil:
		return h.lost
	case hd.GetClusterId() == 0 || m.age != h.age: // nothing is known, or it is late
		return nil
	case h.cluster == 0:
		h.cluster = hd.ClusterId
	case h.former[hd.ClusterId]:
		h.lost = fmt.Errorf("etcd: %w: cluster %x answers again, after %x: the endpoints lead to two clusters; "+
			"let them lead to one", store.ErrSetback, hd.ClusterId, h.cluster)
		return h.lost
	case hd.ClusterId != h.cluster && hd.Revision > h.highest:
		h.succeeded(hd.ClusterId)
	case hd.ClusterId != h.cluster, hd.Revision < m.highest:
		h.lost = fmt.Errorf("etcd: %w: it is at revision %d of cluster %x after %d of %x: "+
			"its data was lost, or an older copy put in place; "+
			"restore it with a --bump-revision that leads beyond %d, or reset what fences by tokens and accept (Keeper.AcceptHistory); "+
			"see docs/etcd.md, Lost and restored data", store.ErrSetback, hd.Revision, hd.ClusterId, h.highest, h.cluster, h.highest)
		return h.lost
	}
	h.highest = max(h.highest, hd.Revision)
	return nil
}

// succeeded: another cluster has taken the place of the one before.
func (h *history) succeeded(cluster uint64) {
	if h.former == nil {
		h.former = map[uint64]bool{}
	}
	h.former[h.cluster] = true
	h.cluster = cluster
	h.age++
}

// heard takes up a header that a member sent of itself, on a stream that began at
// age. It reports whether that casts a doubt: it may be behind, or have gone back.
func (h *history) heard(age int, hd *pb.ResponseHeader) (doubt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case hd.GetClusterId() == 0 || age != h.age || h.lost != nil || h.cluster == 0:
		return false
	case hd.ClusterId != h.cluster:
		return true
	}
	doubt = hd.Revision < h.highest
	h.highest = max(h.highest, hd.Revision)
	return doubt
}

// ask reports whether to ask for progress: not if that was begun within so long.
func (h *history) ask(within time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < within {
		return false
	}
	h.asked = time.Now()
	return true
}

// probe notes the revision of the read that comes before a request for progress.
func (h *history) probe(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.age != h.probed.age || revision > h.probed.highest {
		h.probed = mark{revision, h.age}
	}
}

// answers reports whether a member that sent hd on a watch had told of all that had
// happened when progress was asked for last.
func (h *history) answers(hd *pb.ResponseHeader) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hd.ClusterId == h.cluster && h.age == h.probed.age && hd.Revision >= h.probed.highest
}

// isLost returns store.ErrSetback while the history is not to be gone on with.
func (h *history) isLost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// mend is Store.mend, once etcd has answered.
func (h *history) mend(hd *pb.ResponseHeader) (mended bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil || hd.Revision < h.highest || h.former[hd.ClusterId] {
		return false, h.lost
	}
	if hd.ClusterId != h.cluster {
		h.succeeded(hd.ClusterId)
	}
	h.lost, h.highest = nil, hd.Revision
	h.age++
	return true, nil
}

// accept is AcceptHistory, once etcd has answered: after is the highest revision that was seen.
func (h *history) accept(m mark, hd *pb.ResponseHeader) (after int64, accepted bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.age != h.age || h.lost == nil && hd.ClusterId == h.cluster && hd.Revision >= m.highest {
		return 0, false, h.lost
	}
	after = h.highest
	h.cluster, h.former, h.highest, h.lost = hd.ClusterId, nil, hd.Revision, nil
	h.age++
	h.accepted++
	return after, true, nil
}
