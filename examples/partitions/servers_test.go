//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/partition"
)

const patience = 2 * time.Minute

// database runs a server with the tables of the recipes.
func database(t *testing.T) (*postgrestest.Server, *pgxpool.Pool) {
	t.Helper()
	server := postgrestest.Start(t)
	pool := server.Pool(t)
	_, err := pool.Exec(t.Context(), tables)
	require.NoError(t, err)
	return server, pool
}

// leasesOf returns a store of leases that is reached by a link of its own.
func leasesOf(t *testing.T, server *postgrestest.Server) (*postgres.Store, *postgrestest.Link) {
	t.Helper()
	route, err := server.NewRoute()
	require.NoError(t, err)
	store, err := postgres.New(route.Pool(t))
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	return store, route.Link
}

// soon has nodes that came get partitions at once.
func soon(cfg partition.Config) partition.Config {
	cfg.Settle = time.Millisecond
	return cfg
}

// Messages are handled once and in order while one node of two leaves, and another comes; an owner
// of before changes nothing.
func TestConsumers(t *testing.T) {
	server, pool := database(t)
	_, err := pool.Exec(t.Context(), `CREATE TABLE handled (id bigserial, partition int, pos bigint, node text)`)
	require.NoError(t, err)
	const length = 150 // of each partition
	read := func(ctx context.Context, n int, from int64) (batch []message, err error) {
		if from >= length {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for i := from; i < min(from+3, length); i++ {
			batch = append(batch, message{i, fmt.Sprint(n)})
		}
		time.Sleep(100 * time.Millisecond) // so that moves come in the middle
		return batch, nil
	}
	var former atomic.Pointer[partition.Owned]
	consumers := map[string]*consumer{}
	node := func(id string) (stop func()) {
		store, _ := leasesOf(t, server)
		c := &consumer{pool, store, read, func(ctx context.Context, tx pgx.Tx, m message) error {
			_, err := tx.Exec(ctx, `INSERT INTO handled (partition, pos, node) VALUES ($1::int, $2, $3)`, m.Body, m.Offset, id)
			return err
		}}
		consumers[id] = c
		cfg := soon(c.config())
		own := cfg.Own
		cfg.Own = func(ctx context.Context, o partition.Owned) error {
			if id == "a" {
				former.Store(&o)
			}
			return own(ctx, o)
		}
		return start(t, store, id, member(cfg))
	}
	handled := func(node string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM handled WHERE node LIKE $1`, node).Scan(&n))
		return n
	}
	await := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return handled("%") >= n }, patience, 20*time.Millisecond, "%d messages", n)
	}
	stopA := node("a")
	node("b")
	await(16 * length / 4)
	node("c")
	require.Eventually(t, func() bool { return handled("c") > 0 }, patience, 20*time.Millisecond)
	stopA()
	await(16 * length)
	rows, err := pool.Query(t.Context(), `SELECT pos FROM handled ORDER BY partition, id`)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	var want []int
	for range 16 {
		for i := range length {
			want = append(want, i)
		}
	}
	require.Equal(t, want, got)
	rows, err = pool.Query(t.Context(), `SELECT DISTINCT node FROM handled ORDER BY node`)
	require.NoError(t, err)
	nodes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, nodes)

	_, err = pool.Exec(t.Context(), `UPDATE progress SET next = 0`) // there is something to read
	require.NoError(t, err)
	late, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.ErrorIs(t, consumers["a"].own(late, *former.Load()), postgres.ErrFenced)
	require.Equal(t, 16*length, handled("%"))
}

// Mail is published once, and that of a key in order, while a node leaves, and though another loses
// its leases in the middle of a batch: the next owner waits for the end of that.
func TestOutbox(t *testing.T) {
	server, pool := database(t)
	var mu sync.Mutex
	published := map[string][]int64{}
	var hold atomic.Bool // node b is to be slow, once
	held, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	const ttl = 1500 * time.Millisecond
	node := func(id string) (stop func(), link *postgrestest.Link) {
		store, link := leasesOf(t, server)
		r := &relay{pool, store, func(ctx context.Context, m mail) error {
			if id == "b" && hold.CompareAndSwap(true, false) {
				close(held)
				<-goOn
				defer close(done)
			}
			mu.Lock()
			defer mu.Unlock()
			published[m.Key] = append(published[m.Key], m.ID)
			return nil
		}}
		return start(t, store, id, member(soon(r.config())), ttl), link
	}
	written := 0
	write := func(n int) {
		t.Helper()
		for range n {
			key := fmt.Sprint("customer-", written%20)
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return enqueue(t.Context(), tx, key, "paid") }))
			written++
		}
	}
	await := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, ids := range published {
				n += len(ids)
			}
			return n >= written
		}, patience, 20*time.Millisecond, "%d", written)
	}
	stopA, _ := node("a")
	_, link := node("b")
	write(200)
	await()
	write(100)
	stopA() // b and c have the rest
	node("c")
	write(100)
	await()

	hold.Store(true)
	for isHeld := false; !isHeld; {
		write(20)
		select {
		case <-held:
			isHeld = true
		case <-time.After(time.Second):
		}
	}
	link.Cut() // b's leases run out while it publishes
	require.Eventually(t, func() bool {
		var others int
		const q = `SELECT count(*) FROM holdfast.record WHERE name LIKE 'partition/g/outbox/own/%' AND owner = 'c'`
		require.NoError(t, pool.QueryRow(t.Context(), q).Scan(&others))
		return others >= shards-1 // all but the one for which b publishes
	}, patience, 20*time.Millisecond)
	time.Sleep(200 * time.Millisecond) // c would have that one, too
	close(goOn)
	<-done
	link.Heal()
	await()
	require.Eventually(t, func() bool {
		var left int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&left))
		return left == 0
	}, patience, 20*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for key, ids := range published {
		require.True(t, slices.IsSorted(ids), "%s: %v", key, ids)
		require.Len(t, slices.Compact(slices.Clone(ids)), len(ids), "%s: %v", key, ids)
	}
}

// What was published is not published again because the broker refuses the next, or is so slow that
// the rest would take longer than a transaction may.
func TestASlowBroker(t *testing.T) {
	ctx := t.Context()
	server, pool := database(t)
	store, _ := leasesOf(t, server)
	k, err := lease.NewKeeper(store, lease.Config{ID: "a", Logger: zap.NewNop()})
	require.NoError(t, err)
	l, err := k.Lease("shard")
	require.NoError(t, err)
	term, err := l.AcquireTerm(ctx)
	require.NoError(t, err)
	for range 6 {
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return enqueue(ctx, tx, "customer", "paid") }))
	}
	o := partition.Owned{Term: term}
	require.NoError(t, pool.QueryRow(ctx, `SELECT shard FROM outbox LIMIT 1`).Scan(&o.Number))
	var published []int64
	refused, hangs := errors.New("refused"), true
	r := &relay{pool, store, func(ctx context.Context, m mail) (err error) {
		if m.ID == 2 && refused != nil {
			err, refused = refused, nil
			return err
		}
		if m.ID == 4 && hangs {
			hangs = false
			<-ctx.Done()
			return errors.New("no answer")
		}
		time.Sleep(bound / 5)
		published = append(published, m.ID)
		return nil
	}}
	_, err = r.batch(ctx, o)
	for n := 1; n > 0; {
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		n, err = r.batch(ctx, o)
	}
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6}, published)
	require.NoError(t, l.Close(ctx))
	require.NoError(t, k.Close(ctx))
}

// Of two schedulers one enqueues, and the other when the first has stopped.
func TestAsynq(t *testing.T) {
	server := redistest.Start(t)
	redis := asynq.RedisClientOpt{Addr: server.Addr()}
	var h history
	leases := memory.New()
	node := func(id string) (stop func()) {
		opts := &asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
			if err == nil {
				h.note(id, 0)()
			}
		}}
		return start(t, leases, id, func(ctx context.Context, k *lease.Keeper) error {
			l, err := k.Lease("asynq")
			if err != nil {
				return err
			}
			return scheduleTasks(ctx, l, redis, opts, func(s *asynq.Scheduler) error {
				_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
				return err
			})
		})
	}
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	pending := func() int {
		q, err := inspector.GetQueueInfo("default")
		if err != nil {
			return 0 // there is no queue yet
		}
		return q.Pending
	}
	await := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return pending() >= n }, patience, 20*time.Millisecond)
	}
	stopA := node("a")
	await(1)
	stopB := node("b")
	await(4)
	stopA()
	n := pending()
	await(n + 3)
	stopB()
	who := h.take()
	require.Len(t, who, pending())
	want := append(slices.Repeat([]string{"a"}, n), slices.Repeat([]string{"b"}, len(who)-n)...)
	require.Equal(t, want, who)
}

// Each recipe runs as a program, and ends with its context.
func TestPrograms(t *testing.T) {
	server := postgrestest.Start(t)
	redis := redistest.Start(t)
	t.Setenv("REDIS_ADDR", redis.Addr())
	require.ErrorContains(t, run(t.Context(), server.URL(), "n", "no"), `"no" is no recipe`)
	var out output
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for name := range recipes {
		go func() { ended <- run(ctx, server.URL(), name, name) }()
	}
	for _, line := range []string{"consumed", "published", "clean-up runs", "invoices runs", "report runs by a lease", "tidy runs by slots", "report runs by gocron, elected", "report runs by gocron, locked"} {
		require.Eventually(t, func() bool { return out.contains(line) }, patience, 20*time.Millisecond, line)
	}
	require.Eventually(t, func() bool {
		n, err := redis.Do(t.Context(), "LLEN", "asynq:{default}:pending")
		return err == nil && n.(int64) > 0
	}, patience, 20*time.Millisecond)
	cancel()
	for range recipes {
		require.NoError(t, <-ended)
	}
}

// Work that has all connections of its pool keeps leases from nothing.
func TestLeasesHaveConnectionsOfTheirOwn(t *testing.T) {
	server := postgrestest.Start(t)
	recipes["busy"] = func(ctx context.Context, p place) error {
		for range p.pool.Config().MaxConns {
			c, err := p.pool.Acquire(ctx)
			require.NoError(t, err)
			defer c.Release()
		}
		l, err := p.keeper.Lease("busy")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err = l.AcquireTerm(ctx)
		require.NoError(t, err)
		return l.Close(ctx)
	}
	defer delete(recipes, "busy")
	require.NoError(t, run(t.Context(), server.URL(), "n", "busy"))
}

// output can be read while it is written.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	return len(b), nil
}

func (o *output) contains(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text, []byte(text))
}
