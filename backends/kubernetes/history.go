package kubernetes

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
)

// history notices when resourceVersions go back, as after etcd was restored from a copy. Every answer
// that has the version of a write, or of a listing, is above all that was answered before it was asked for.
type history struct {
	revision.History
	wrote revision.Seen // the latest write of this Store
}

// at is where a version is. No answer tells of which cluster it is.
func at(version store.Token) revision.At { return revision.At{Cluster: 1, Number: int64(version)} }

// begin is the beginning of every request but those of Watch that follow on one. While the history is
// lost it looks whether that is over.
func (o *objects) begin(ctx context.Context) (revision.Mark, error) {
	if o.history.Lost() != nil {
		now, err := o.revision(ctx)
		if err == nil {
			_, err = o.history.Mend(at(now))
		}
		if err != nil {
			return revision.Mark{}, err
		}
	}
	return o.history.Mark(), nil
}

// answered takes up the version that the answer to a request has which was sent after m. The error is
// store.ErrSetback.
func (h *history) answered(m revision.Mark, version store.Token) error {
	return h.Answered(m, at(version), func(at, was revision.At, _ bool) error {
		return fmt.Errorf("%w: it answers with resourceVersion %d after %d: etcd was restored from an older copy, or "+
			"the address leads to another cluster; see docs/kubernetes.md", store.ErrSetback, at.Number, was.Number)
	})
}

// accept goes on with what stands.
func (o *objects) accept(ctx context.Context) error {
	m := o.history.Mark()
	now, err := o.revision(ctx)
	if err != nil {
		return err
	}
	_, accepted, err := o.history.Accept(m, at(now))
	if accepted {
		o.history.wrote.Accept()
	}
	return err
}
