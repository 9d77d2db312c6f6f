//go:build linux

package nodes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// history is all that was ever written to the fenced journal, and what became of the leases'
// records, by the store's own history.
func (t *torture) history(ctx context.Context) (rs []record, hs []hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	h, err := t.servers.History(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the store's history: %w", err)
	}
	for _, w := range h.Writes {
		r, err := recordOf(w)
		if err != nil {
			return nil, nil, err
		}
		rs = append(rs, r)
	}
	if h.Changes != nil {
		hs = []hold{}
	}
	for _, c := range h.Changes {
		if i, ok := t.settings.Names.number(c.Lease); ok {
			hs = append(hs, hold{i, int64(c.Token), c.Session})
		}
	}
	return rs, hs, nil
}

// writeText is what a worker appends: its token, and who it is.
func writeText(token uint64, index, life, n int) string {
	return fmt.Sprintf("%d %d %d %d", token, index, life, n)
}

func recordOf(w Write) (record, error) {
	first, _, _ := strings.Cut(w.Text, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return record{}, fmt.Errorf("the write %q to the journal of %d: %w", w.Text, w.Name, err)
	}
	return record{w.Name, w.Position, token, w.Text}, nil
}
