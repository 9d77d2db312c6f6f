// Command singleton shows a cluster singleton: a scheduler that three nodes start and one
// runs, while a client on a fourth asks it all the time. The node that hosts it is killed,
// and later the next one leaves as it should.
//
//	go run ./examples/singleton                                      # in one process; 12 s
//	go run ./examples/singleton -store etcd://127.0.0.1:2379 -id a   # one node; start several
//
// The exit status is 0 if the verdict is good, and 1 if it is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/examples/internal/victim"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

const ttl = 2 * time.Second

// What the client asks, and what it is answered.
type (
	AddJob   struct{ Number int }
	Accepted struct{ Number int }
)

// scheduler is the singleton: an actor like any other, which writes jobs to a ledger.
func scheduler(node string, to *ledger) *actor.Props {
	return actor.PropsFromFunc(func(ctx actor.Context) {
		if job, ok := ctx.Message().(AddJob); ok {
			held, _ := singleton.Of(ctx) // the ownership it works under
			if to.write(held.Token(), node, job.Number) == nil {
				ctx.Respond(Accepted(job))
			}
		}
	})
}

func config(id, listen string, store store.Store) node.Config {
	return node.Config{
		ID: id, Store: store, Lease: lease.Config{TTL: ttl},
		Listen: listen, Plaintext: true, // one machine; else TLS
		Messages: node.Types(AddJob{}, Accepted{}),
	}
}

// one runs one node until a signal.
func one(ctx context.Context, url, id, listen string) error {
	store, closeStore, err := open.Open(ctx, url)
	if err != nil {
		return err
	}
	defer closeStore()
	n, err := node.Start(ctx, config(id, listen, store))
	if err != nil {
		return err
	}
	to := newLedger()
	s, err := n.Singleton("scheduler", scheduler(id, to))
	if err != nil {
		return errors.Join(err, n.Stop(ctx))
	}
	go to.client(ctx, s, time.Second)
	return n.Run(ctx)
}

// all runs three nodes and a client in this process, and judges what they did.
func all(ctx context.Context) (err error) {
	db, to, nodes := memory.New(), newLedger(), map[string]*victim.Node{}
	var client *singleton.Manager
	for _, id := range []string{"a", "b", "c", "client"} {
		n, err := victim.Start(ctx, db, func(s store.Store) node.Config { return config(id, "127.0.0.1:0", s) })
		if err != nil {
			return err
		}
		defer n.Stop(ctx)
		nodes[id] = n
		var opts []singleton.Option
		if id == "client" {
			opts = append(opts, singleton.WithProxyOnly())
		}
		if client, err = n.Singleton("scheduler", scheduler(id, to), opts...); err != nil {
			return err
		}
	}
	asking, enough := context.WithTimeout(ctx, 12*time.Second)
	defer enough()
	asked := make(chan int)
	go func() { asked <- to.client(asking, client, 20*time.Millisecond) }()

	time.Sleep(3 * time.Second)
	killed := to.host()
	say("%s is killed: it releases nothing", killed)
	nodes[killed].Kill()
	time.Sleep(2 * ttl)
	left := to.host()
	say("%s leaves: it hands the scheduler over", left)
	if err := nodes[left].Stop(ctx); err != nil {
		return err
	}
	return to.judge(<-asked, killed, left)
}

// ledger is what the scheduler writes to. Its fence refuses one that was replaced.
type ledger struct {
	fence lease.Fence

	mu      sync.Mutex
	jobs    map[int]bool
	hosts   []string // one after the other
	token   lease.Token
	last    time.Time
	longest time.Duration // in which nothing was written
}

func newLedger() *ledger { return &ledger{jobs: map[int]bool{}, last: time.Now()} }

func (l *ledger) write(t lease.Token, node string, number int) error {
	return l.fence.Do(t, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t != l.token {
			say("%s hosts, under token %d", node, t)
			l.hosts, l.token = append(l.hosts, node), t
		}
		l.longest, l.last, l.jobs[number] = max(l.longest, time.Since(l.last)), time.Now(), true
		return nil
	})
}

func (l *ledger) host() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{""}, l.hosts...)[len(l.hosts)]
}

// client asks for one job after the other, each until it is answered, and returns how many.
func (l *ledger) client(ctx context.Context, s *singleton.Manager, pause time.Duration) (number int) {
	for number = 1; ; number++ {
		for answered := false; !answered; {
			if ctx.Err() != nil {
				return number - 1
			}
			within, cancel := context.WithTimeout(ctx, time.Second)
			got, err := singleton.Ask[Accepted](within, s, AddJob{number})
			cancel()
			if answered = err == nil && got.Number == number; !answered {
				say("job %d is asked again: %v", number, err)
			}
		}
		time.Sleep(pause)
	}
}

// judge says what is not as it must be: an answer without its job, another host than
// those that were killed and left made room for, or a time without any.
func (l *ledger) judge(answered int, killed, left string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for number := 1; number <= answered; number++ {
		if !l.jobs[number] {
			lost++
		}
	}
	found := fmt.Sprintf("%d jobs, %d lost; hosts %v, one at a time; at most %v without one", answered, lost, l.hosts, l.longest.Round(time.Millisecond))
	if answered < 100 || lost > 0 || len(l.hosts) != 3 || l.hosts[0] != killed || l.hosts[1] != left || l.longest > ttl+2*time.Second {
		return errors.New("verdict: BROKEN: " + found)
	}
	say("verdict: GOOD: %s", found)
	return nil
}

var began = time.Now()

func say(format string, args ...any) {
	fmt.Printf("%5.2f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	url := flag.String("store", "", "URL of a store, to run one node on; default: all in this process")
	id := flag.String("id", fmt.Sprintf("node-%d", os.Getpid()), "the node's name, with -store")
	listen := flag.String("listen", "127.0.0.1:0", "where the node listens, with -store")
	flag.Parse()
	run := func() error { return all(context.Background()) }
	if *url != "" {
		run = func() error { return one(context.Background(), *url, *id, *listen) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
