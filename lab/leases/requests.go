//go:build linux

package leases

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	osexec "os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// allRequests counts what holding names takes on each store. Kubernetes is for some 2000.
func allRequests(ctx context.Context, run *scene.Run) {
	stores, names := []string{onEtcd, onPostgres, onSQLite, onRedis, onKubernetes}, []int{1, 1000, 100_000}
	if run.Store != "" {
		stores = []string{run.Store}
	}
	for _, on := range stores {
		ttl := 10 * time.Second
		if on == onKubernetes {
			ttl, names = 15*time.Second, []int{1, 1000, 2000}
		}
		if run.Short {
			ttl, names = 3*time.Second, []int{1, 100}
		}
		for _, n := range names {
			requests(ctx, run, on, holdfast, ttl, n)
		}
	}
}

// requests counts what one process asks of a server of its own for as long as it holds names in a way, by
// what the server says.
func requests(ctx context.Context, run *scene.Run, on, way string, ttl time.Duration, names int) {
	b, of := compared(ctx, run, on, ttl, postgrestest.WithSetting("shared_preload_libraries", "pg_stat_statements"))
	defer b.close()
	if b.server != nil {
		scene.Check(b.server.Exec(ctx, "CREATE EXTENSION pg_stat_statements"))
	}
	running, halt := context.WithCancel(ctx)
	var all sync.WaitGroup
	began := time.Now()
	if of.Way = way; way == holdfast {
		k, end := of.keeper(ctx, "many")
		b.atEnd(end)
		hs := make([]*lease.Handle, names)
		forAll(names, 256, func(i int) error { // of which a busy disk lets some time out
			hs[i] = scene.Must(k.Lease(fmt.Sprint("many-", i)))
			return lab.Until(ctx, 5*time.Minute, "it is held", func() bool { return hold(ctx, hs[i]) == nil })
		})
		defer func() {
			if lost := len(slices.DeleteFunc(hs, (*lease.Handle).CheckAlive)); lost > 0 {
				run.Violation("%d of %d names were lost on %s", lost, names, on)
			}
		}()
	} else {
		for i := range names {
			of.Name = fmt.Sprint("many-", i)
			c := b.candidate(ctx, of, "many")
			c.await(ctx)
			all.Go(func() {
				for c.renew != nil && lab.Pause(running, ttl/3) == nil {
					c.renew(ctx)
				}
			})
		}
	}
	b.atEnd(func() { halt(); all.Wait() }) // before the candidates are closed
	took := time.Since(began)
	scene.Check(lab.Pause(ctx, ttl/3))
	began, before := time.Now(), b.asked(ctx, of)
	scene.Check(lab.Pause(ctx, 2*ttl))
	n, during := b.asked(ctx, of)-before, time.Since(began)
	if way == holdfast && n <= 0 {
		scene.Check(errors.New("the server counts no requests: another name for the metric?"))
	}
	run.Figure(fmt.Sprintf("requests a second for %d names, %s, %s", names, on, way), "%.2f (%.0f in %v; acquired in %v)",
		n/during.Seconds(), n, during.Round(time.Second), scene.Short(took))
}

// What servers say of requests, each with a number at its end. Redis's is without what asks for the count.
var (
	redisCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval|set|xread):calls=(\d+)`)
	kubeCalls  = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="leases"[^}]*\} (\S+)$`)
)

// asked is how many requests the server has had, by its own count: messages of etcd's clients, statements,
// commands, requests for Leases (a watch counts when it ends); of a file, its transactions.
func (b *bed) asked(ctx context.Context, of holding) (n float64) {
	sum := func(of *regexp.Regexp, text string) {
		for _, m := range of.FindAllStringSubmatch(text, -1) {
			n += scene.Must(strconv.ParseFloat(m[1], 64))
		}
	}
	switch of.Store {
	case onEtcd:
		return scene.Must(b.member().Metrics(ctx)).Sum("grpc_server_msg_received_total")
	case onRedis:
		sum(redisCalls, fmt.Sprint(scene.Must(b.redis.Do(ctx, "info", "commandstats"))))
	case onKubernetes:
		client := scene.Must(coordination.NewForConfig(of.kube())).RESTClient()
		sum(kubeCalls, string(scene.Must(client.Get().AbsPath("/metrics").DoRaw(ctx))))
	case onSQLite:
		// The index of the log counts them. A process that closes a file loses its locks on it, so another one
		// reads it.
		index := scene.Must(osexec.CommandContext(ctx, "cat", strings.TrimPrefix(of.URL, "sqlite:")+"-shm").Output())
		n = float64(binary.NativeEndian.Uint32(index[8:]))
	default:
		b.count(ctx, "SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat%'", &n)
	}
	return n
}
