// Command sharding shows bank accounts that live on the nodes of a cluster, each on one
// at a time, while a client pays in. One node joins, one leaves as it should, and one is
// killed.
//
//	go run ./examples/sharding                                      # in one process; 16 s
//	go run ./examples/sharding -store etcd://127.0.0.1:2379 -id a   # one node; start several
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
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

const (
	ttl      = 2 * time.Second
	accounts = 40
)

// What an account receives, and what it answers.
type (
	PayIn   struct{ Number, Amount int } // a number is paid in once, however often it comes
	Receipt struct{ Number, Balance int }
)

// account is an entity: an actor like any other. What must outlive it is in the ledger.
type account struct {
	node string
	to   *ledger
}

// Receive implements actor.Actor.
func (a *account) Receive(ctx actor.Context) {
	if p, ok := ctx.Message().(PayIn); ok {
		me, _ := sharding.Of(ctx) // which account it is, and under which ownership it works
		if balance, err := a.to.payIn(me.Token(), a.node, me.Shard(), me.ID(), p); err == nil {
			ctx.Respond(Receipt{p.Number, balance})
		}
	}
}

func config(id, listen string, store store.Store) node.Config {
	return node.Config{
		ID: id, Store: store, Group: "bank", Lease: lease.Config{TTL: ttl},
		Listen: listen, Plaintext: true, // one machine; else TLS
		Messages: node.Types(PayIn{}, Receipt{}),
	}
}

func accountsOn(n *node.Node, id string, to *ledger, opts ...sharding.Option) (*sharding.Region, error) {
	return n.Sharded("account", actor.PropsFromProducer(func() actor.Actor { return &account{id, to} }), opts...)
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
	region, err := accountsOn(n, id, to)
	if err != nil {
		return errors.Join(err, n.Stop(ctx))
	}
	go to.client(ctx, region, 100*time.Millisecond)
	go func() {
		for range time.Tick(time.Second) {
			say("accounts here: %d", to.where()[id])
		}
	}()
	return n.Run(ctx)
}

// all runs the nodes and a client in this process, and judges what they did.
func all(ctx context.Context) error {
	db, to, nodes := memory.New(), newLedger(), map[string]*victim.Node{}
	start := func(id string, opts ...sharding.Option) (*sharding.Region, error) {
		n, err := victim.Start(ctx, db, func(s store.Store) node.Config { return config(id, "127.0.0.1:0", s) })
		if err != nil {
			return nil, err
		}
		nodes[id] = n
		return accountsOn(n.Node, id, to, opts...)
	}
	defer func() {
		for _, n := range nodes {
			_ = n.Stop(ctx) // the verdict is out; one of them was killed
		}
	}()
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := start(id); err != nil {
			return err
		}
	}
	region, err := start("client", sharding.WithProxyOnly())
	if err != nil {
		return err
	}
	asking, enough := context.WithTimeout(ctx, 14*time.Second)
	defer enough()
	asked := make(chan int)
	go func() { asked <- to.client(asking, region, 2*time.Millisecond) }()

	steps := []struct {
		what string
		do   func() error
	}{
		{"e joins", func() error { _, err := start("e"); return err }},
		{"b leaves: it hands its accounts over", func() error { return nodes["b"].Stop(ctx) }},
		{"a is killed: it releases nothing", func() error { nodes["a"].Kill(); return nil }},
	}
	for _, s := range steps {
		time.Sleep(3 * time.Second)
		say("accounts at %v; %s", to.where(), s.what)
		if err := s.do(); err != nil {
			return err
		}
	}
	paid := <-asked
	say("accounts at %v", to.where())
	return to.judge(paid)
}

// ledger is what accounts write to. A fence for each shard refuses an account whose node
// was replaced.
type ledger struct {
	mu       sync.Mutex
	fences   map[int]*lease.Fence
	home     map[string]string // node of each account
	last     map[string]time.Time
	balance  map[string]int
	payments map[int]bool
	longest  time.Duration // for which an account was not served
}

func newLedger() *ledger {
	return &ledger{fences: map[int]*lease.Fence{}, home: map[string]string{}, last: map[string]time.Time{}, balance: map[string]int{}, payments: map[int]bool{}}
}

func (l *ledger) payIn(t lease.Token, node string, shard int, id string, p PayIn) (balance int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fences[shard] == nil {
		l.fences[shard] = &lease.Fence{}
	}
	err = l.fences[shard].Do(t, func() error {
		if !l.payments[p.Number] {
			l.payments[p.Number] = true
			l.balance[id] += p.Amount
		}
		l.home[id], l.last[id], balance = node, time.Now(), l.balance[id]
		return nil
	})
	return balance, err
}

// where says how many accounts each node had last.
func (l *ledger) where() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, node := range l.home {
		count[node]++
	}
	return count
}

// client pays 1 in, into one account after the other, each time until there is a receipt,
// and returns how often.
func (l *ledger) client(ctx context.Context, r *sharding.Region, pause time.Duration) (paid int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	number := 0
	for i := range accounts {
		all.Go(func() {
			for id := fmt.Sprintf("account-%d", i); ctx.Err() == nil; time.Sleep(pause * accounts) {
				mu.Lock()
				number++
				p, began := PayIn{number, 1}, time.Now()
				mu.Unlock()
				for done := false; !done; {
					within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
					got, err := sharding.Ask[Receipt](within, r, id, p)
					cancel()
					done = err == nil && got.Number == p.Number
				}
				mu.Lock()
				paid++
				l.longest = max(l.longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return paid
}

// judge says what is not as it must be: money that is lost or was made, an account that
// was not served for long.
func (l *ledger) judge(paid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, b := range l.balance {
		sum += b
	}
	found := fmt.Sprintf("%d paid in, %d in the accounts; no account waited for more than %v", paid, sum, l.longest.Round(time.Millisecond))
	if paid < 1000 || sum != paid || len(l.balance) != accounts || l.longest > ttl+3*time.Second {
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
