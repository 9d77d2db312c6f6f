package sharding_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
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
	f.endWith(f.c.log.complete)
}

// endWith stops and checks what became of the messages 1 to n of each sender to each entity.
func (f *traffic) endWith(check func(sender, id string, n int)) {
	f.c.t.Helper()
	close(f.stop)
	f.wg.Wait()
	time.Sleep(15 * time.Second)
	synctest.Wait()
	f.c.log.check()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, n := range f.sent {
		sender, id, _ := strings.Cut(key, ">")
		check(sender, id, n)
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

func TestAJoinMovesItsPart(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 60)
		f := c.traffic(10*time.Millisecond, ns...)
		time.Sleep(time.Second)
		d := c.node("d")
		d.start(60)
		ns = append(ns, d)
		f.add(d, 10*time.Millisecond)
		c.settled(20*time.Second, ns...)
		moved := int64(0)
		for _, n := range ns {
			moved += n.region.Info().HandedOff
		}
		require.EqualValues(t, 15, moved)
		time.Sleep(time.Second)
		f.end()
		c.whole(ns...)
	})
}
