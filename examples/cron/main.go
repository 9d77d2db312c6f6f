// Command cron shows a job that runs every second in one of several processes. What one
// does that was replaced is refused.
//
//	go run ./examples/cron                                  # two in one process, of which the first ends; 8 s
//	go run ./examples/cron -store etcd://127.0.0.1:2379     # one; start several, and kill some
//
// The exit status is 1 if a second's job ran twice, or too few ran.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// table stands for one of a database: it keeps the highest token, and which jobs were done.
var table struct {
	lease.Fence
	sync.Mutex
	twice bool
	done  map[int64]bool
}

// job is what is done once a second.
func job(t lease.Token, second int64) error {
	return table.Do(t, func() error {
		table.Lock()
		defer table.Unlock()
		log.Printf("job of second %d, under token %d", second%60, t)
		table.twice = table.twice || table.done[second]
		table.done[second] = true
		return nil
	})
}

// every runs the job each second, for as long as the lease lasts.
func every(ctx context.Context, t lease.Term) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case at := <-tick.C:
			if err := job(t.Token(), at.Unix()); err != nil {
				return err // it was replaced
			}
		}
	}
}

func process(ctx context.Context, store store.Store, id string) {
	keeper, err := lease.NewKeeper(store, lease.Config{ID: id, TTL: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close(context.Background())
	cron, err := keeper.Lease("cron/report")
	if err != nil {
		log.Fatal(err)
	}
	for ctx.Err() == nil {
		if err := lease.Run(ctx, cron, every); err != nil && ctx.Err() == nil {
			log.Printf("%s: %v", id, err) // a lease that was lost
		}
	}
}

func main() {
	url := flag.String("store", "memory:", "URL of the store")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, closeStore, err := open.Open(ctx, *url)
	if err != nil {
		log.Fatal(err)
	}
	defer closeStore()
	var all sync.WaitGroup
	table.done = map[int64]bool{}
	least := 0
	if *url == "memory:" { // of this process alone
		least = 5
		ctx, stop = context.WithTimeout(ctx, 8*time.Second)
		defer stop()
		half, end := context.WithTimeout(ctx, 4500*time.Millisecond)
		defer end()
		all.Go(func() { process(half, store, "first") })
		time.Sleep(time.Second / 2) // so that it is the first, and the other takes over
	}
	all.Go(func() { process(ctx, store, fmt.Sprintf("process-%d", os.Getpid())) })
	all.Wait()
	if table.twice || len(table.done) < least {
		log.Fatalf("verdict: BROKEN: %d jobs, one of them twice: %v", len(table.done), table.twice)
	}
	log.Printf("verdict: GOOD: %d jobs, none twice", len(table.done))
}
