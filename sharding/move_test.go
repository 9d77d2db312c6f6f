package sharding_test

import (
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// traffic sends numbered jobs from every node to some entities, until stop.
type traffic struct {
	c    *cluster
	stop chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	sent map[string]int // by sender and id
}

const ids = 40

func (c *cluster) traffic(every time.Duration, ns ...*node) *traffic {
	f := &traffic{c: c, stop: make(chan struct{}), sent: map[string]int{}}
	for _, n := range ns {
		f.add(n, every)
	}
	return f
}

func (f *traffic) add(n *node, every time.Duration) {
	f.wg.Go(func() {
		for k := 1; ; k++ {
			select {
			case <-f.stop:
				return
			case <-time.After(every):
			}
			for i := range ids {
				id := fmt.Sprint("id", i)
				if n.region.Tell(id, formOf(job{n.id, k})) != nil {
					return
				}
				f.mu.Lock()
				f.sent[n.id+">"+id] = k
				f.mu.Unlock()
			}
		}
	})
}

// end stops and checks that everything arrived once and in order.
func (f *traffic) end() {
	f.c.t.Helper()
	close(f.stop)
	f.wg.Wait()
	time.Sleep(15 * time.Second)
	synctest.Wait()
	f.c.log.check()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, n := range f.sent {
		var sender, id string
		for i := range key {
			if key[i] == '>' {
				sender, id = key[:i], key[i+1:]
			}
		}
		f.c.log.complete(sender, id, n)
	}
}

func (c *cluster) whole(ns ...*node) {
	c.t.Helper()
	for _, n := range ns {
		in := n.region.Info()
		require.Zero(c.t, in.Dropped, n.id)
		require.Zero(c.t, in.Undeliverable, n.id)
		require.Zero(c.t, in.Unordered, n.id)
		require.Zero(c.t, in.Overruns, n.id)
	}
}
