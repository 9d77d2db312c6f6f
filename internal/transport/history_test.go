package transport

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// wireworld is a sender, the lives of its peer, and the connections between them. One
// that broke may still deliver what was under way, late.
type wireworld struct {
	r        *simulate.Random
	s        *sender
	now      time.Duration
	to, from []conn // the last is the present one
	life     int
	recv     receiver
	opened   bool // the present life was probed
	owners   []*holder
	lost     atomic.Int64

	items, straights, arrived, unsent int
	forgotten                         int
	keptBy                            map[int]*holder
	taken                             map[int][]int // by life
	fate                              map[int]int
	returned                          map[int]bool
	sent                              map[string]bool
	late                              bool // breaks may be told late
	up                                bool // the sender's link was, when it was looked at last
	trace                             []string
	err                               string
}

type conn struct{ msgs []any }

func newWireworld(seed uint64) *wireworld {
	w := &wireworld{r: histories.Random(seed), s: newSender(), life: 1, owners: []*holder{{}, {}, {}}, to: make([]conn, 1), from: make([]conn, 1),
		keptBy: map[int]*holder{}, taken: map[int][]int{}, fate: map[int]int{}, returned: map[int]bool{}, sent: map[string]bool{}, late: seed%2 == 0}
	return w
}

func (w *wireworld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%v ", w.now)+fmt.Sprintf(format, args...))
}

func (w *wireworld) fail(format string, args ...any) {
	if w.err == "" {
		w.err = fmt.Sprintf(format, args...)
	}
}

// settle sends what is queued, as a Peer does, and tells owners.
func (w *wireworld) settle(back []returned) {
	if w.up && !w.s.up && !w.s.broke {
		w.fail("nobody is told that the link broke")
	}
	w.up, w.s.broke = w.s.up, false
	w.s.afterBurst(w.now)
	for _, m := range w.s.take() {
		if f, ok := m.(*wire.Frame); ok {
			key := fmt.Sprint(f.Link, " ", f.GetEnvelope().Sequence)
			if w.sent[key] {
				w.fail("%v goes twice on one link", f)
			}
			w.sent[key] = true
			m = proto.Clone(f)
		}
		w.logf("sends %v", m)
		c := &w.to[len(w.to)-1]
		c.msgs = append(c.msgs, m)
	}
	for _, b := range back {
		for _, it := range b.items {
			w.logf("%v returns", it)
			w.returned[it.(int)] = true
			if w.keptBy[it.(int)] != b.owner.(*holder) {
				w.fail("%v returns to another", it)
			}
		}
	}
	for _, o := range w.s.roomy() {
		o.Linked("b")
	}
	if w.s.flying.messages > w.s.window+1 {
		w.fail("%d are under way", w.s.flying.messages)
	}
	held := int64(0)
	for _, o := range w.owners {
		held += o.held.Load()
	}
	if int(held) != len(w.s.frames) {
		w.fail("held %d of %d", held, len(w.s.frames))
	}
}

// failSend has the send of the last straight message fail. The Peer counts it, and may do so
// again when the link breaks.
func (w *wireworld) failSend() {
	i := slices.IndexFunc(w.s.out, func(o outgoing) bool { return o.msg == w.straights })
	w.lost.Add(1)
	w.unsent++
	w.s.out = slices.Delete(w.s.out, i, i+1)
}

// deliver has the next message of a connection arrive.
func (w *wireworld) deliver(conns []conn, i int) {
	m := conns[i].msgs[0]
	conns[i].msgs = conns[i].msgs[1:]
	switch m := m.(type) {
	case int:
		w.arrived++
	case *wire.Probe:
		w.opened = true
		if w.recv.probe(m) {
			c := &w.from[len(w.from)-1]
			c.msgs = append(c.msgs, &wire.Ack{From: &wire.Node{Address: "b", Incarnation: fmt.Sprint("b", w.life)}, Link: m.Link, Number: m.Number, Taken: w.recv.taken})
		}
	case *wire.Frame:
		if w.opened && w.recv.frame(m) {
			item := int(m.GetEnvelope().Sequence)
			w.logf("b%d takes %d", w.life, item)
			if list := w.taken[w.life]; len(list) > 0 && list[len(list)-1] >= item {
				w.fail("b%d takes %d after %v", w.life, item, list)
			}
			w.taken[w.life] = append(w.taken[w.life], item)
			w.fate[item]++
			if w.returned[item] {
				w.fail("%d is taken though it returned", item)
			}
		}
	case *wire.Ack:
		w.logf("hears %v", m)
		w.settle(w.s.ack(m, w.now))
	}
}

// cut breaks the present connection one way.
func (w *wireworld) cut(conns *[]conn) { *conns = append(*conns, conn{}) }

func (w *wireworld) pick(conns []conn) int {
	var full []int
	for i := range conns {
		if len(conns[i].msgs) > 0 {
			full = append(full, i)
		}
	}
	if len(full) == 0 {
		return -1
	}
	return full[w.r.IntN(len(full))]
}

func (w *wireworld) gone() {
	w.logf("the link is gone")
	w.settle(w.s.gone(w.now))
}

func (w *wireworld) pass(d time.Duration) {
	w.now += d
	if at := w.s.due(); at >= 0 && at <= w.now {
		w.settle(w.s.tick(w.now))
	}
}

func (w *wireworld) step() {
	switch w.r.IntN(21) {
	case 0, 1, 2, 3:
		if w.s.room() || w.r.IntN(10) == 0 && max(w.s.flying.messages, len(w.s.frames)) <= w.s.window {
			w.items++
			o := w.owners[w.r.IntN(len(w.owners))]
			w.keptBy[w.items] = o
			w.s.keep(frame{owner: o, item: w.items, msg: &wire.Frame{To: "x", What: &wire.Frame_Envelope{Envelope: &wire.Envelope{Sequence: uint64(w.items)}}}, size: 10}, w.now)
			w.settle(nil)
		} else {
			w.s.wait(w.owners[0], w.now)
			w.settle(nil)
		}
	case 4, 5:
		if w.s.room() {
			w.straights++
			w.s.straight(w.s.mail, w.straights, 10, &w.lost, w.now)
			if w.r.IntN(8) == 0 {
				w.failSend()
			}
			w.settle(nil)
		}
	case 6, 7, 8, 9, 10:
		if i := w.pick(w.to); i >= 0 {
			w.deliver(w.to, i)
		}
	case 11, 12, 13, 14:
		if i := w.pick(w.from); i >= 0 {
			w.deliver(w.from, i)
		}
	case 15:
		if w.r.IntN(4) == 0 {
			w.cut(&w.to)
			if !w.late || w.r.IntN(2) == 0 {
				w.gone()
			}
		}
	case 16:
		if w.r.IntN(4) == 0 {
			w.cut(&w.from)
		}
	case 17:
		if w.r.IntN(10) == 0 {
			w.logf("the peer restarts")
			w.life++
			w.recv, w.opened = receiver{}, false
			w.to = []conn{{}}
			w.cut(&w.from)
			if !w.late || w.r.IntN(2) == 0 {
				w.gone()
			}
		}
	case 18:
		// A connection that broke delivers nothing more.
		if n := w.r.IntN(len(w.to)); n < len(w.to)-1 {
			w.to[n].msgs = nil
			if w.late && w.r.IntN(2) == 0 {
				w.gone()
			}
		}
	case 20:
		if w.s.idle() {
			w.logf("the channel is forgotten")
			base := max(w.s.base, w.s.link)
			w.s = newSender()
			w.s.base, w.up = base, false
			w.forgotten++
		}
	case 19:
		w.pass(time.Duration(w.r.Int64N(int64(300 * time.Millisecond))))
	}
}

// rest lets everything arrive.
func (w *wireworld) rest() {
	for i := range len(w.to) - 1 {
		w.to[i].msgs = nil
	}
	w.gone()
	for range 10_000 {
		if len(w.to[len(w.to)-1].msgs) > 0 {
			w.deliver(w.to, len(w.to)-1)
		} else if i := w.pick(w.from); i >= 0 {
			w.deliver(w.from, i)
		} else if w.s.due() >= 0 {
			w.pass(10 * time.Millisecond)
		} else {
			return
		}
	}
	w.fail("it does not come to rest")
}

// However connections break, deliver late, and peers restart, and though channels at rest
// are forgotten: one life takes each frame
// once and in order, nothing goes twice on one link, and each frame is taken or returns.
func TestFramesAreTakenOnce(t *testing.T) {
	var taken, back, restarts, forgotten atomic.Int64
	histories.Run(t, func(t *testing.T, seed uint64) {
		w := newWireworld(seed)
		for range 400 {
			if w.r.Step() {
				w.step()
			}
		}
		w.rest()
		for item := 1; item <= w.items; item++ {
			if w.fate[item] == 0 && !w.returned[item] {
				w.fail("%d is lost", item)
			}
		}
		if !w.late && w.arrived+int(w.lost.Load()) < w.straights {
			w.fail("%d straight messages, %d arrived, %d lost", w.straights, w.arrived, w.lost.Load())
		}
		if int(w.lost.Load()) > w.straights+w.unsent {
			w.fail("more is lost than was sent")
		}
		if n := len(w.s.frames) + len(w.s.legs) + len(w.s.later) + len(w.s.told) + len(w.s.waiting) + w.s.flying.messages + w.s.flying.bytes; n > 0 {
			w.fail("memory is not given back: %+v", w.s)
		}
		require.Empty(t, w.err, "seed %d\n%s", seed, strings.Join(w.trace, "\n"))
		taken.Add(int64(len(w.fate)))
		back.Add(int64(len(w.returned)))
		restarts.Add(int64(w.life - 1))
		forgotten.Add(int64(w.forgotten))
	})
	require.True(t, histories.Replays() || taken.Load() > 0 && back.Load() > 0 && restarts.Load() > 0 && forgotten.Load() > 0)
}

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

var histories = simulate.New("transport", 500, 1500)

// calm waits for what protoactor counts of dead letters.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

// holder is an Owner that notes what it is told.
type holder struct {
	held   atomic.Int64
	linked atomic.Int64 // told by any goroutine
	back   []any
}

func (h *holder) Linked(string)               { h.linked.Add(1) }
func (h *holder) Returned(_ string, it []any) { h.back = append(h.back, it...) }
func (h *holder) Held() *atomic.Int64         { return &h.held }

func newSender() *sender {
	return &sender{self: &wire.Node{Address: "a", Incarnation: "a1"}, mail: actor.NewPID("b", mailID), window: 8, bytes: 1 << 20}
}

// take empties what is to be sent.
func (s *sender) take() (out []any) {
	for _, o := range s.out {
		out = append(out, o.msg)
	}
	s.out = nil
	return out
}
