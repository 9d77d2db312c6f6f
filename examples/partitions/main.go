// Command partitions runs one node of a recipe of docs/recipes-partitions.md. Start several of one
// recipe, and stop some:
//
//	DATABASE_URL=postgres://… go run . RECIPE
//
// Without a recipe it lists them. The leases are in that database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	recipe := ""
	if len(os.Args) > 1 {
		recipe = os.Args[1]
	}
	if err := run(ctx, os.Getenv("DATABASE_URL"), fmt.Sprint("node-", os.Getpid()), recipe); err != nil {
		log.Fatal(err)
	}
}

// place is what a recipe finds on its node.
type place struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	keeper *lease.Keeper
	group  *membership.Group
}

// tables are those of the recipes, made by one node at a time.
const tables = `SELECT pg_advisory_xact_lock(1);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next bigint NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id bigserial PRIMARY KEY, shard int NOT NULL, key text NOT NULL, body text NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_shard ON outbox (shard, id);`

// run runs a node of a recipe until ctx is done, and hands over.
func run(ctx context.Context, url, id, recipe string) error {
	begin := recipes[recipe]
	if begin == nil {
		return fmt.Errorf("%q is no recipe, must be one of %q", recipe, slices.Sorted(maps.Keys(recipes)))
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	leases, err := pgxpool.New(ctx, url) // work that uses up the other holds up no renewal
	if err != nil {
		return err
	}
	defer leases.Close()
	store, err := postgres.New(leases)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	keeper, err := lease.NewKeeper(store, lease.Config{ID: id})
	if err != nil {
		return err
	}
	after := context.WithoutCancel(ctx)
	defer keeper.Close(after)
	group, err := membership.Join(ctx, keeper, "recipes")
	if err != nil {
		return err
	}
	defer group.Leave(after)
	if err := begin(ctx, place{pool, store, keeper, group}); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // it waited for a lease
}

// takePart owns partitions until ctx is done, and passes them on.
func takePart(ctx context.Context, group *membership.Group, cfg partition.Config) error {
	p, err := partition.Start(ctx, group, cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return p.Stop(context.WithoutCancel(ctx))
}

var recipes = map[string]func(ctx context.Context, p place) error{
	"consumers": func(ctx context.Context, p place) error {
		c := &consumer{p.pool, p.store, everySecond, func(_ context.Context, _ pgx.Tx, m message) error {
			log.Printf("consumed %q", m.Body)
			return nil
		}}
		return takePart(ctx, p.group, c.config())
	},
	"outbox": func(ctx context.Context, p place) error {
		stop := every(ctx, time.Second, func() {
			key := fmt.Sprint("customer-", rand.N(10))
			if err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return enqueue(ctx, tx, key, "paid") }); err != nil {
				log.Print(err)
			}
		})
		defer stop()
		r := &relay{p.pool, p.store, func(_ context.Context, m mail) error {
			log.Printf("published %d to %s: %s", m.ID, m.Key, m.Body)
			return nil
		}}
		return takePart(ctx, p.group, r.config())
	},
	"cron": func(ctx context.Context, p place) error {
		jobs := map[string]job{"clean-up": {"@every 2s", say("clean-up runs")}, "invoices": {"@every 3s", say("invoices runs")}}
		return takePart(ctx, p.group, spread(jobs))
	},
	"robfig": func(ctx context.Context, p place) error {
		l, err := p.keeper.Lease("cron")
		if err != nil {
			return err
		}
		return onOneNode(ctx, l, job{"@every 1s", say("report runs by a lease")})
	},
	"robfig-slots": func(ctx context.Context, p place) error {
		s, err := newSlots(p.store, p.keeper, 900*time.Millisecond)
		if err != nil {
			return err
		}
		return runCron(ctx, "@every 1s", func() { log.Print("tidy runs by slots") }, cron.WithChain(s.once("tidy")))
	},
	"gocron-elector": func(ctx context.Context, p place) error {
		e, stop, err := newElector(ctx, p.keeper)
		if err != nil {
			return err
		}
		defer stop()
		return runGocron(ctx, gocron.WithDistributedElector(e), gocron.DurationJob(time.Second), func() { log.Print("report runs by gocron, elected") })
	},
	"gocron-locker": func(ctx context.Context, p place) error {
		s, err := newSlots(p.store, p.keeper, 900*time.Millisecond)
		if err != nil {
			return err
		}
		return runGocron(ctx, gocron.WithDistributedLocker(s), gocron.DurationJob(time.Second), func() { log.Print("report runs by gocron, locked") })
	},
	"asynq": func(ctx context.Context, p place) error {
		l, err := p.keeper.Lease("asynq/scheduler")
		if err != nil {
			return err
		}
		return scheduleTasks(ctx, l, asynq.RedisClientOpt{Addr: os.Getenv("REDIS_ADDR")}, nil, func(s *asynq.Scheduler) error {
			_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
			return err
		})
	},
}

// say returns a job that logs that it runs.
func say(text string) func(context.Context, lease.Token) {
	return func(context.Context, lease.Token) { log.Print(text) }
}

// every calls f each d until it is stopped, or ctx is done.
func every(ctx context.Context, d time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for tick := time.Tick(d); ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-tick:
				f()
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
