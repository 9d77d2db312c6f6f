//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ledger is all that was ever written to the fenced journal, by etcd's own history.
func (t *torture) ledger(ctx context.Context) (rs []record, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{t.etcd.Members()[0].Direct()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	prefix := strings.TrimSuffix(journalKey(0), "0")
	last, err := client.Put(ctx, prefix+"end", "")
	if err != nil {
		return nil, err
	}
	for w := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := w.Err(); err != nil {
			return nil, err
		}
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return rs, nil
			}
			name, err := strconv.Atoi(strings.TrimPrefix(string(e.Kv.Key), prefix))
			if err != nil {
				return nil, fmt.Errorf("the key %q: %w", e.Kv.Key, err)
			}
			text := string(e.Kv.Value)
			first, _, _ := strings.Cut(text, " ")
			token, err := strconv.ParseUint(first, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("the write %q: %w", text, err)
			}
			rs = append(rs, record{name, e.Kv.ModRevision, token, text})
		}
	}
	return nil, fmt.Errorf("the history of the journal ends: %w", ctx.Err())
}
