//go:build linux

package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// history is all that was ever written to the fenced journal, and what became of the leases'
// records, by the store's own history.
func (t *torture) history(ctx context.Context) (ws []Write, hs []hold) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	h := scene.Must(t.servers.History(ctx))
	if h.Changes != nil {
		hs = []hold{}
	}
	for _, c := range h.Changes {
		if i, ok := t.settings.Names.number(c.Lease); ok {
			hs = append(hs, hold{i, int64(c.Token), c.Session})
		}
	}
	return h.Writes, hs
}

// writeText is what a worker appends: its token, and who it is.
func writeText(token uint64, index, life, n int) string {
	return fmt.Sprintf("%d %d %d %d", token, index, life, n)
}
