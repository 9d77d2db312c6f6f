package etcd

import (
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
)

// history notices when etcd's history goes back. Every answer tells the cluster's ID and a revision.
//
// A revision that some member has told of was agreed on by a majority. So an answer
// that is linearizable, as those of the KV service are here, and was asked for later
// can't be of a lower one. Answers of watches and keepalives are a member's own,
// which may lag: they raise what was seen, and can only cast a doubt.
type history struct {
	revision.History

	mu     sync.Mutex
	probed revision.Mark // what a watch has to have told of to have answered the last request for progress
	asked  time.Time     // when that was begun
}

// at is what a header says.
func at(hd *pb.ResponseHeader) revision.At {
	return revision.At{Cluster: hd.GetClusterId(), Number: hd.GetRevision()}
}

// answered takes up the header of a linearizable answer to a request sent after m.
// The error is store.ErrSetback.
func (h *history) answered(m revision.Mark, hd *pb.ResponseHeader) error {
	return h.Answered(m, at(hd), func(at, was revision.At, again bool) error {
		if again {
			return fmt.Errorf("etcd: %w: cluster %x answers again, after %x: the endpoints lead to two clusters; "+
				"let them lead to one", store.ErrSetback, at.Cluster, was.Cluster)
		}
		return fmt.Errorf("etcd: %w: it is at revision %d of cluster %x after %d of %x: "+
			"its data was lost, or an older copy put in place; "+
			"restore it with a --bump-revision that leads beyond %d, or reset what fences by tokens and accept (Keeper.AcceptHistory); "+
			"see docs/etcd.md, Lost and restored data", store.ErrSetback, at.Number, at.Cluster, was.Number, was.Cluster, was.Number)
	})
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
func (h *history) probe(number int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.Mark(); m.Age != h.probed.Age || number > h.probed.Highest {
		h.probed = revision.Mark{Highest: number, Age: m.Age}
	}
}

// answers reports whether a member that sent hd on a watch had told of all that had
// happened when progress was asked for last.
func (h *history) answers(hd *pb.ResponseHeader) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Reached(h.probed, at(hd))
}
