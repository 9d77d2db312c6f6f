package handover_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/store"
)

func TestStatesAreWithinTheirBudget(t *testing.T) {
	var b, other handover.Budget
	b.Bound(3 * (1 + 100 + 128))
	other.Bound(1 + 100 + 128)
	s := handover.NewStates(&b)
	for _, k := range []string{"a", "b", "c"} {
		require.NoError(t, s.Put(k, make([]byte, 100)))
	}
	require.ErrorIs(t, s.Put("d", nil), handover.ErrBudget)
	require.NoError(t, s.Put("a", make([]byte, 90)), "in place of the other")
	require.Equal(t, 3, s.Len())
	x := handover.NewStates(&other)
	require.NoError(t, x.Put("a", nil))
	lost := x.Absorb(s)
	require.Len(t, lost, 2, "a is there, and there is no room for the rest")
	require.Zero(t, b.Used())
	require.Equal(t, []string{"a"}, x.Drop())
	require.Zero(t, other.Used())
	var none *handover.States
	require.Empty(t, none.Drop())
	require.Zero(t, none.Len())
}

// Whatever the order in which states, the word, the host's going on and its giving up
// come: each state is had, told as late, told as refused, or counted as missing.
func TestTakingAccountsForEveryState(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var b handover.Budget
		b.Bound(int64(rng.IntN(2000)))
		from := &wire.Node{Incarnation: "x"}
		tk := handover.Take(&b, from, 7)
		require.True(t, tk.Is(from, 7))
		require.False(t, tk.Is(from, 8))
		n := rng.IntN(10)
		stops := rng.IntN(n + 2) // how many come before the old host falls silent; n+1: the word, too
		begins := rng.IntN(n + 3)
		had, told, missing, known := 0, 0, 0, true
		for i := 0; i <= n+2; i++ {
			if i == begins {
				had = len(tk.Begin().Drop())
			}
			switch {
			case i >= stops:
			case i < n:
				m := &wire.EntityState{Key: fmt.Sprint(i), State: make([]byte, rng.IntN(300)), States: uint32(n)}
				if tk.State(m) != nil {
					told++
				} else if i < begins {
					require.NoError(t, tk.State(m), "a second time")
				}
			case i == n:
				missing += tk.Word(&wire.HandedOver{States: uint32(n)})
				require.True(t, tk.Complete())
			}
		}
		var rest int
		rest, known = tk.End()
		missing += rest
		require.Equal(t, stops > 0, known, "seed %d", seed)
		if known {
			require.Equal(t, n, had+told+missing, "seed %d", seed)
		}
		require.Zero(t, b.Used())
	}
}

// taker is the next host's end.
type taker struct {
	came map[string]bool // states
	t    *handover.Taking
	told int
	done bool
}

func (k *taker) Receive(ctx actor.Context) {
	m := ctx.Message()
	if x, ok := m.(*transport.Kept); ok {
		m = x.What
	}
	switch m := m.(type) {
	case *wire.EntityState:
		k.came[m.Key] = true
		if k.t.State(m) != nil {
			k.told++
		}
	case *wire.HandedOver:
		k.told += k.t.Word(m)
		k.done = true
	}
}

// Random cuts, deaths and delays: each state is had by the next host or told, and
// nothing stays in a Budget.
func TestEveryStateIsTakenOrTold(t *testing.T) {
	for seed := range uint64(tier.Draws(150, 150)) {
		synctest.Test(t, func(t *testing.T) { history(t, seed) })
	}
}

func history(t *testing.T, seed uint64) {
	defer func() { time.Sleep(20 * time.Second); synctest.Wait() }()
	rng := rand.New(rand.NewPCG(seed, 2))
	net := memnet.New()
	system := func(addr string) *actor.ActorSystem {
		s := actor.NewActorSystem(remoting.LogTo(nil), actor.WithDeadLetterThrottleCount(0))
		net.Join(s, addr)
		transport.Of(s)
		return s
	}
	a, b := system("a"), system("b")
	n := rng.IntN(800)
	k := &taker{came: map[string]bool{}, t: handover.Take(&handover.Of(b).Taken, &wire.Node{Incarnation: "a"}, 1)}
	_, err := b.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return k }), "taker")
	require.NoError(t, err)
	// The channel knows whose life it leads to: some other mail went before.
	known := make(chan struct{})
	handover.Send(handover.Config{System: a, Clock: store.SystemClock(), Actor: "nobody", Limit: 1 << 20, From: &wire.Node{}, To: &wire.Node{Address: "b"},
		Within: time.Second, Done: func(*handover.Sending) { close(known) }}, nil)
	<-known
	states := handover.NewStates(&handover.Of(a).Left)
	for i := range n {
		require.NoError(t, states.Put(fmt.Sprint(i), make([]byte, rng.IntN(20<<10))))
	}
	net.SetDelay("a", "b", time.Duration(rng.IntN(500))*time.Millisecond)
	net.SetDelay("b", "a", time.Duration(rng.IntN(500))*time.Millisecond)
	cold, ends, dead := map[string]int{}, 0, false
	done := make(chan struct{})
	told := make(chan string, 2*n+1)
	s := handover.Send(handover.Config{System: a, Clock: store.SystemClock(), Actor: "taker", Limit: 1 << 20, Name: "x", Number: 1,
		From: &wire.Node{Address: "a", Incarnation: "a"}, To: &wire.Node{Address: "b", Incarnation: "b"}, Within: 10 * time.Second,
		Holds: func() bool { return !dead },
		Cold:  func(key string, _ error) { told <- key },
		Done:  func(*handover.Sending) { ends++; close(done) }}, states)
	for range rng.IntN(4) {
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		switch rng.IntN(5) {
		case 0, 1, 2:
			net.Cut("a", "b")
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			net.Heal("a", "b")
		case 3:
			if !dead {
				dead = true
				net.Kill("b")
				if rng.IntN(2) == 0 {
					system("b") // a life that knows nothing of it
				}
			}
		}
	}
	<-done
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	close(told)
	for key := range told {
		cold[key]++
		require.Equal(t, 1, cold[key], "seed %d: told once", seed)
	}
	had := len(k.t.Begin().Drop())
	missing, _ := k.t.End()
	switch {
	case !dead && len(cold) == 0: // what the next host has, and tells, is all
		require.Equal(t, n, had+k.told+missing, "seed %d", seed)
	case !dead:
		require.Equal(t, n, len(cold), "seed %d: none came", seed)
		require.Zero(t, had)
	case k.done && len(cold) == 0: // it died with all of them, as a host
	default:
		require.Equal(t, n, len(cold), "seed %d: the next host is gone", seed)
	}
	word := 0
	if k.done {
		word = 1
	}
	if !dead { // what did not come was given up: that is no progress
		require.GreaterOrEqual(t, s.Missed(), n+1-len(k.came)-word, "seed %d", seed)
	}
	require.Zero(t, s.Left(), "seed %d", seed)
	require.Equal(t, 1, ends)
	require.Zero(t, handover.Of(a).Left.Used(), "seed %d", seed)
	require.Zero(t, handover.Of(b).Taken.Used(), "seed %d", seed)
}

type stateless struct{}

func (stateless) Receive(actor.Context) {}

// keeper keeps what it was given, or does something else.
type keeper struct {
	stateless
	state []byte
	do    func() error
}

func (k *keeper) HandOverState() ([]byte, error) {
	if k.do != nil {
		return k.state, k.do()
	}
	return k.state, nil
}

func (k *keeper) RestoreState(state []byte) error {
	if k.do != nil {
		return k.do()
	}
	k.state = state
	return nil
}

func TestAStateIsTakenAndGiven(t *testing.T) {
	next, cold := &keeper{}, []string{}
	lost := func(why error) { cold = append(cold, why.Error()) }
	state, err := handover.HandOver(&keeper{state: []byte("four")}, 4)
	require.NoError(t, err)
	require.NoError(t, handover.Restore(next, state, lost))
	require.Equal(t, "four", string(next.state))
	_, err = handover.HandOver(next, 3)
	require.ErrorContains(t, err, "4 bytes, at most 3")
	state, err = handover.HandOver(stateless{}, 4)
	require.NoError(t, err)
	require.Nil(t, state)
	require.Empty(t, cold)
	require.NoError(t, handover.Restore(stateless{}, state, lost), "it starts as it is")
	require.Equal(t, []string{"the actor is not Stateful"}, cold)
}

// Whatever an actor does instead is an error that says so; its goroutine goes on.
func TestAnActorThatFailsLeavesNoState(t *testing.T) {
	why := errors.New("not today")
	for want, do := range map[string]func() error{
		why.Error():          func() error { return why },
		"it panicked: a bug": func() error { panic("a bug") },
	} {
		k := &keeper{state: []byte("four"), do: do}
		state, err := handover.HandOver(k, 4)
		require.ErrorContains(t, err, "HandOverState: "+want)
		require.Nil(t, state)
		var cold error
		err = handover.Restore(k, state, func(why error) { cold = why })
		require.ErrorContains(t, err, "RestoreState: "+want)
		require.Equal(t, err, cold)
	}
	require.ErrorIs(t, handover.Restore(&keeper{do: func() error { return why }}, nil, func(error) {}), why)
}
