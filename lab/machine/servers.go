//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	"github.com/holdfast-go/holdfast/lab/scene"
)

// EtcdHistory calls f with every change of an etcd that was never compacted, the oldest first.
func EtcdHistory(ctx context.Context, client *clientv3.Client, f func(*clientv3.Event)) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 2*time.Minute)
	defer cancel()
	last := scene.Must(client.Put(ctx, "lab/end", ""))
	for w := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		scene.Check(w.Err())
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return
			}
			f(e)
		}
	}
	scene.Check(fmt.Errorf("etcd's history ends: %w", ctx.Err()))
}

// Migrate makes the tables of leases on a server, and then runs a statement.
func Migrate(ctx context.Context, s *postgrestest.Server, then string) {
	_, closeStore, err := open.Open(ctx, s.URL()+"&holdfast_migrate=true")
	scene.Check(err)
	scene.Check(errors.Join(closeStore(), s.Exec(ctx, then)))
}
