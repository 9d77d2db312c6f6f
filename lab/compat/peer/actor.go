package peer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/lease"
)

// Singleton is the name of the singleton.
const Singleton = "singleton"

type (
	// Numbered is a message of a stream: 1, 2, 3, …. It is answered with Accepted
	// where it is asked. As Protocol Buffers it is a StringValue "STREAM NUMBER".
	Numbered struct {
		Stream string
		Number uint64
	}
	Accepted struct{}
	// Tell is answered with the Ledger.
	Tell struct{}
	// Ledger is what an actor has handled, on all its hosts: it moves as its state.
	Ledger struct {
		Last    map[string]uint64   // the highest number of each stream
		Missing map[string][]uint64 // those below it that have not come
		Late    []string            // those that came out of order
		Wrong   []string            // those that came twice, and what is no number
		Others  int                 // messages that it does not know
	}
)

// keeper is the singleton, and each entity.
type keeper struct {
	Ledger
	tell  func(Lifespan)
	whose func(actor.Context) (string, lease.Token)
	life  Lifespan
}

func (p *peer) actors(whose func(actor.Context) (string, lease.Token)) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &keeper{Ledger: Ledger{Last: map[string]uint64{}, Missing: map[string][]uint64{}}, whose: whose, tell: func(l Lifespan) { p.say(Report{Did: LifeSays, Lifespan: &l}) }}
	})
}

// Receive implements actor.Actor.
func (k *keeper) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		name, token := k.whose(c)
		k.life = Lifespan{Name: name, Token: uint64(token), At: now(), Began: true}
		k.tell(k.life)
	case *actor.Stopped:
		k.tell(Lifespan{Name: k.life.Name, Token: k.life.Token, At: now()})
	case *actor.Stopping, *actor.ReceiveTimeout:
	case Numbered:
		k.take(m.Stream, m.Number)
		if c.Sender() != nil {
			c.Respond(Accepted{})
		}
	case *wrapperspb.StringValue:
		var n uint64
		stream, number, _ := strings.Cut(m.GetValue(), " ")
		_, err := fmt.Sscan(number, &n)
		if err != nil {
			note(&k.Wrong, "%q: %v", m.GetValue(), err)
			return
		}
		k.take(stream, n)
	case Tell:
		c.Respond(k.Ledger)
	default:
		k.Others++
	}
}

func (k *keeper) take(stream string, n uint64) {
	last := k.Last[stream]
	if n > last {
		for x := last + 1; x < n; x++ {
			k.Missing[stream] = append(k.Missing[stream], x)
		}
		k.Last[stream] = n
		return
	}
	to := &k.Wrong
	if i := slices.Index(k.Missing[stream], n); i >= 0 {
		k.Missing[stream] = slices.Delete(k.Missing[stream], i, i+1)
		to = &k.Late
	}
	note(to, "%s: %d after %d, at token %d", stream, n, last, k.life.Token)
}

func note(to *[]string, format string, args ...any) {
	if len(*to) < 20 {
		*to = append(*to, fmt.Sprintf(format, args...))
	}
}

// HandOverState implements Stateful, of both packages.
func (k *keeper) HandOverState() ([]byte, error) { return json.Marshal(k.Ledger) }

// RestoreState implements Stateful.
func (k *keeper) RestoreState(state []byte) error { return json.Unmarshal(state, &k.Ledger) }

// now reads the clock that is the same for all processes.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}
