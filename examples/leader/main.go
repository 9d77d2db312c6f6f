// Command leader shows a leader among processes, without actors: one of them leads at a
// time, whatever fails.
//
//	go run ./examples/leader                                  # three candidates in one process; 8 s
//	go run ./examples/leader -store etcd://127.0.0.1:2379     # one; start several, and kill some
//
// The exit status is 1 if two led at a time, or too few.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

var leading, terms, faults atomic.Int64

// lead is what the leader does. ctx is done when the lease is lost.
func lead(ctx context.Context, t lease.Term) error {
	terms.Add(1)
	if leading.Add(1) > 1 {
		faults.Add(1)
	}
	defer leading.Add(-1)
	log.Printf("a new leader, under token %d", t.Token())
	select {
	case <-ctx.Done():
	case <-time.After(time.Second): // that is enough: it is for another to lead
	}
	return nil
}

// stand has a candidate lead whenever it can.
func stand(ctx context.Context, store store.Store, id string) {
	keeper, err := lease.NewKeeper(store, lease.Config{ID: id})
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close(context.Background()) // releases what it holds
	leader, err := keeper.Lease("leader")
	if err != nil {
		log.Fatal(err)
	}
	for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		if err := lease.Run(ctx, leader, lead); err != nil && ctx.Err() == nil {
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
	candidates, least := 1, int64(0)
	if *url == "memory:" { // of this process alone
		candidates, least = 3, 5
		ctx, stop = context.WithTimeout(ctx, 8*time.Second)
		defer stop()
	}
	var all sync.WaitGroup
	for i := range candidates {
		all.Go(func() { stand(ctx, store, fmt.Sprintf("candidate-%d-%d", os.Getpid(), i)) })
	}
	all.Wait()
	if faults.Load() > 0 || terms.Load() < least {
		log.Fatalf("verdict: BROKEN: %d terms, %d of them beside another", terms.Load(), faults.Load())
	}
	log.Printf("verdict: GOOD: %d terms, one at a time", terms.Load())
}
