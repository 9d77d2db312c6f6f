package transport

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// eager is an Owner that sends its items again when they return, and asks again for room.
type eager struct {
	holder
	mu    sync.Mutex
	a     *station
	todo  []string
	backs []any
}

func (o *eager) push() {
	o.mu.Lock()
	p := o.a.To("b")
	for len(o.todo) > 0 {
		if !p.Room() {
			p.Wait(o)
			break
		}
		key := o.todo[0]
		o.todo = o.todo[1:]
		p.Keep(o, key, "x", &wire.Frame{What: &wire.Frame_Envelope{Envelope: &wire.Envelope{Key: key}}}, 1<<20)
	}
	o.mu.Unlock()
	p.Flush()
}

func (o *eager) Linked(string) { go o.push() }
func (o *eager) Returned(_ string, items []any) {
	o.mu.Lock()
	o.backs = append(o.backs, items...)
	var back []string
	for _, it := range items {
		back = append(back, it.(string))
	}
	o.todo = append(back, o.todo...)
	o.mu.Unlock()
	go o.push()
}
func (o *eager) Held() *atomic.Int64 { return &o.held }

// However goroutines, breaks and code of users that fails interleave, the channel comes to rest
// with all of what was kept taken, once and in order, and all else arrived or counted.
func TestNoInterleavingStandsStill(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stressed(t, seed) })
	}
}

func stressed(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second)
		rng := rand.New(rand.NewPCG(seed, 1))
		net := memnet.New()
		a, b := join(net, "a"), join(net, "b")
		a.sends(func(*actor.MessageEnvelope) {
			switch r := rand.IntN(400); {
			case r < 100:
				runtime.Gosched()
			case r < 120:
				time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
			case r == 120 && seed%3 == 0:
				panic("a middleware's bug")
			case r == 121 && seed%5 == 0:
				time.Sleep(7 * time.Second)
			}
		})
		net.SetDelay("a", "b", time.Duration(rng.IntN(int(20*time.Millisecond))))
		net.SetDelay("b", "a", time.Duration(rng.IntN(int(20*time.Millisecond))))
		var all sync.WaitGroup
		var lost atomic.Int64
		var straight atomic.Int64
		owners := make([]*eager, 3)
		for g := range owners {
			o := &eager{a: a}
			owners[g] = o
			all.Go(func() {
				for i := range 100 {
					o.mu.Lock()
					o.todo = append(o.todo, fmt.Sprintf("%d %d", g, i))
					o.mu.Unlock()
					o.push()
					if rand.IntN(4) == 0 {
						time.Sleep(time.Duration(rand.IntN(int(200 * time.Millisecond))))
					}
				}
			})
		}
		for g := range 3 {
			all.Go(func() {
				for k := range 200 {
					sent := make(chan struct{})
					go func() { // which may be ended
						defer close(sent)
						var parcel Parcel
						if a.To("b").Straight(&parcel, actor.NewPID("b", "x"), &wire.Envelope{Key: fmt.Sprint("s", g, " ", k)}, 10, &lost) {
							straight.Add(1)
							if rand.IntN(4) == 0 {
								runtime.Gosched()
							}
							parcel.Flush()
						}
					}()
					<-sent
					if rand.IntN(3) == 0 {
						time.Sleep(time.Duration(rand.IntN(int(100 * time.Millisecond))))
					}
				}
			})
		}
		all.Go(func() {
			for range 15 {
				time.Sleep(time.Duration(rand.IntN(int(time.Second))))
				switch rand.IntN(6) {
				case 0:
					net.Cut("a", "b")
				case 1:
					net.CutOneWay("a", "b")
				case 2:
					net.CutOneWay("b", "a")
				case 3:
					net.Stall("b", "a")
					time.Sleep(time.Duration(rand.IntN(int(20 * time.Second))))
					net.Unstall("b", "a")
				case 4:
					a.gone("b")
				}
				time.Sleep(time.Duration(rand.IntN(int(time.Second))))
				net.Heal("a", "b")
			}
		})
		all.Wait()
		began := time.Now()
		for time.Since(began) < giveUpAfter {
			n := int64(0)
			for _, o := range owners {
				o.mu.Lock()
				n += int64(len(o.todo)) + o.held.Load()
				o.mu.Unlock()
			}
			if n == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		time.Sleep(time.Minute)
		synctest.Wait()
		last, kept, arrived := map[int]int{}, map[string]int{}, int64(0)
		for _, line := range b.seen() {
			var how, key string
			var g, i int
			fmt.Sscan(line, &how, &key)
			if how == "kept" {
				fmt.Sscanf(line, "kept %d %d", &g, &i)
				require.GreaterOrEqual(t, i, last[g], "%v came back %v", line, owners[g].backs)
				last[g] = i
				kept[line]++
				require.Equal(t, 1, kept[line])
			} else {
				arrived++
			}
		}
		require.Len(t, kept, 300, "took %v", took)
		require.GreaterOrEqual(t, arrived+lost.Load(), straight.Load())
		p := a.To("b")
		p.mu.Lock()
		require.False(t, p.draining)
		require.False(t, p.settling)
		require.Empty(t, p.s.out)
		require.Empty(t, p.s.frames)
		p.mu.Unlock()
		require.Less(t, took, giveUpAfter)
	})
}
