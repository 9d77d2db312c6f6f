package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/remoting"
)

// tally is what the good peer's asks came to.
type tally struct {
	Address         string
	Asked, Answered int
	Disorder, Lost  int // answers out of order; links that broke
	Longest         time.Duration
}

// asker asks each of its targets every few milliseconds, whether or not the last
// answer has come.
type asker struct {
	mu    sync.Mutex
	tally tally
}

const askEvery = 5 * time.Millisecond

func runAsker(address, targets string) int {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	if _, err := listen(system); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a := &asker{tally: tally{Address: system.Address()}}
	actors.WatchLinks(system, func(string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tally.Lost++
	})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, id := range strings.Fields(targets) {
		all.Go(func() { a.ask(system, actor.NewPID(address, id), stop) })
	}
	commands(func(cmd string) {
		if cmd == "stop" {
			close(stop)
			all.Wait()
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !a.complete(); {
				time.Sleep(5 * time.Millisecond)
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		say(a.tally)
	})
	return 0
}

func (a *asker) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tally.Answered == a.tally.Asked
}

// ask asks one target until it is told to stop.
func (a *asker) ask(system *actor.ActorSystem, target *actor.PID, stop chan struct{}) {
	next, began := 1, map[int]time.Time{}
	self := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		m, ok := ctx.Message().(*wrapperspb.StringValue)
		if !ok {
			return
		}
		var number int
		_, _ = fmt.Sscan(m.Value, &number)
		a.mu.Lock()
		defer a.mu.Unlock()
		if number != next {
			a.tally.Disorder++
		}
		next = number + 1
		a.tally.Answered++
		a.tally.Longest = max(a.tally.Longest, time.Since(began[number]))
		delete(began, number)
	}))
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for i := 1; ; i++ {
		a.mu.Lock()
		began[i] = time.Now()
		a.tally.Asked++
		a.mu.Unlock()
		system.Root.RequestWithCustomSender(target, wrapperspb.String(fmt.Sprint(i, " asker")), self)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
