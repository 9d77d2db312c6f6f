//go:build linux

package torture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
)

// history is all that was ever written to the fenced journal, and what became of the
// leases' records, by etcd's own history.
func (t *torture) history(ctx context.Context) (rs []record, hs []hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{t.etcd.Members()[0].Direct()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	prefix := strings.TrimSuffix(journalKey(0), "0")
	last, err := client.Put(ctx, prefix+"end", "")
	if err != nil {
		return nil, nil, err
	}
	for w := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := w.Err(); err != nil {
			return nil, nil, err
		}
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return rs, hs, nil
			}
			key := string(e.Kv.Key)
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "end" {
				r, err := recordOf(name, e)
				if err != nil {
					return nil, nil, fmt.Errorf("the key %q: %w", key, err)
				}
				rs = append(rs, r)
			} else if i, ok := t.settings.Names.number(strings.TrimPrefix(key, etcd.DefaultPrefix)); ok {
				hs = append(hs, hold{i, e.Kv.ModRevision, uint64(e.Kv.Lease)})
			}
		}
	}
	return nil, nil, fmt.Errorf("etcd's history ends: %w", ctx.Err())
}

func recordOf(name string, e *clientv3.Event) (record, error) {
	number, err := strconv.Atoi(name)
	if err != nil {
		return record{}, err
	}
	text := string(e.Kv.Value)
	first, _, _ := strings.Cut(text, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return record{}, fmt.Errorf("the write %q: %w", text, err)
	}
	return record{number, e.Kv.ModRevision, token, text}, nil
}
