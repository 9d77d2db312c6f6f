package gate_test

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// The benchmarks compare the message rate of a guarded actor with that of a
// plain one. Rounds of both alternate within one run, so that noise hits both:
// guarded/plain is the median, over neighbouring rounds, of the ratio of the
// rates, and the times are those of the median round. The term checks as a real one does:
// both clocks against a deadline behind an atomic pointer.
//
// The figures are per message: plain-ns, guarded-ns, and gate-allocs, which is
// what the gate adds.

// busy is sunk into so that the calibrated loop isn't optimised away.
var busy uint64

func spin(loops int) {
	x := busy | 1
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	busy = x
}

// microsecond returns how many loops of spin take 1 µs.
var microsecond = sync.OnceValue(func() int {
	const probe = 1_000_000
	best := time.Hour
	for range 5 {
		start := time.Now()
		spin(probe)
		best = min(best, time.Since(start))
	}
	return max(1, int(probe*time.Microsecond/best))
})

// side is one of the two actors of a comparison.
type side struct {
	pid     *actor.PID
	post    func(message any)
	hold    chan struct{} // what *pause waits for
	done    chan struct{} // a round was handled
	rounds  []time.Duration
	mallocs uint64
}

func median[T cmp.Ordered](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

type (
	pause struct{}
	tick  struct{ _ int }
)

const perRound = 4096

func newSide(system *actor.ActorSystem, loops int, wrap func(*actor.Props) *actor.Props) *side {
	s := &side{hold: make(chan struct{}), done: make(chan struct{}, 1)}
	n := 0
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		switch ctx.Message().(type) {
		case *tick:
			if loops > 0 {
				spin(loops)
			}
			if n++; n == perRound {
				n = 0
				s.done <- struct{}{}
			}
		case *pause:
			<-s.hold
		}
	})
	s.pid = system.Root.Spawn(wrap(props))
	s.post = func(message any) { system.Root.Send(s.pid, message) }
	return s
}

// round sends and waits; with the mailbox filled beforehand if prefilled.
func (s *side) round(prefilled bool) {
	var before, after runtime.MemStats
	message := any(&tick{})
	runtime.ReadMemStats(&before)
	start := time.Now()
	if prefilled {
		s.post(&pause{})
	}
	for range perRound {
		s.post(message)
	}
	if prefilled {
		start = time.Now()
		s.hold <- struct{}{}
	}
	<-s.done
	s.rounds = append(s.rounds, time.Since(start))
	runtime.ReadMemStats(&after)
	s.mallocs += after.Mallocs - before.Mallocs
}

func compare(b *testing.B, loops int, prefilled, front bool) {
	system := newSystem()
	term := newDeadlineTerm(store.SystemClock(), time.Hour)
	defer term.end(lease.ErrReleased)
	g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}})
	if err != nil {
		b.Fatal(err)
	}
	plain := newSide(system, loops, func(p *actor.Props) *actor.Props { return p })
	guarded := newSide(system, loops, g.Props)
	if front {
		guarded.post = func(message any) { g.Post(&actor.MessageEnvelope{Message: message}) }
		plain.post = func(message any) { system.Root.Send(plain.pid, &actor.MessageEnvelope{Message: message}) }
	}
	defer func() {
		system.Root.Stop(plain.pid)
		system.Root.Stop(guarded.pid)
		<-g.Done()
	}()
	for _, s := range []*side{plain, guarded} {
		s.round(prefilled)
		s.rounds, s.mallocs = make([]time.Duration, 0, 1<<16), 0
	}
	rounds := 0
	for b.Loop() {
		first, second := plain, guarded
		if rounds%2 == 1 {
			first, second = second, first
		}
		first.round(prefilled)
		second.round(prefilled)
		rounds++
	}
	messages := float64(rounds * perRound)
	ratios := make([]float64, rounds)
	for i := range ratios {
		ratios[i] = float64(plain.rounds[i]) / float64(guarded.rounds[i])
	}
	b.ReportMetric(float64(median(plain.rounds))/perRound, "plain-ns")
	b.ReportMetric(float64(median(guarded.rounds))/perRound, "guarded-ns")
	b.ReportMetric(median(ratios), "guarded/plain")
	b.ReportMetric((float64(guarded.mallocs)-float64(plain.mallocs))/messages, "gate-allocs")
}

func BenchmarkSend(b *testing.B) {
	b.Run("handler=empty", func(b *testing.B) { compare(b, 0, false, false) })
	b.Run("handler=1us", func(b *testing.B) { compare(b, microsecond(), false, false) })
}

func BenchmarkDrain(b *testing.B) {
	b.Run("handler=empty", func(b *testing.B) { compare(b, 0, true, false) })
	b.Run("handler=1us", func(b *testing.B) { compare(b, microsecond(), true, false) })
}

// BenchmarkFrontDoor posts envelopes through the front door.
func BenchmarkFrontDoor(b *testing.B) {
	b.Run("handler=empty", func(b *testing.B) { compare(b, 0, false, true) })
	b.Run("handler=1us", func(b *testing.B) { compare(b, microsecond(), false, true) })
}
