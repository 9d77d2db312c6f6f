//go:build linux

package leases

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// sizes say how much is compared.
type sizes struct {
	ttl       time.Duration // of leases, sessions and the leader table, renewed each third of it
	turns     int           // acquisitions by each way
	handOvers int           // by each way
	deaths    int           // of holders of each way, and as many stops
	patience  time.Duration // what one call may take
}

func sizesOf(run *scene.Run) sizes {
	s := sizes{ttl: 5 * time.Second, turns: 1000, handOvers: 200, deaths: 5, patience: 10 * time.Second}
	if run.Short {
		s = sizes{ttl: 3 * time.Second, turns: 20, handOvers: 3, deaths: 1, patience: 30 * time.Second}
	}
	return s
}

// compare runs leases beside what people use on the same server: the etcd client's own package
// concurrency and the bare requests, or session advisory locks that are polled for and a leader table
// in the manner of River's.
func compare(ctx context.Context, run *scene.Run) (err error) {
	p := sizesOf(run)
	b, of, err := compared(ctx, storeOf(run), p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	t, err := newTurns(ctx, p, of)
	if err != nil {
		return err
	}
	for range p.turns {
		if err := t.turn(ctx); err != nil {
			t.close()
			return err
		}
	}
	t.close()
	t.print(run)
	ratio := func(what string, took map[string][]time.Duration, way string, most float64) {
		got := float64(scene.Percentile(took[holdfast], 50)) / float64(scene.Percentile(took[way], 50))
		run.AtMost(fmt.Sprintf("%s p50, ours to %s", what, way), got, most, "")
	}
	over, err := handOvers(ctx, p, of)
	if err != nil {
		return err
	}
	for _, way := range waysOn(of.Store) {
		run.Spread("hand-over by release, "+way, over[way])
	}
	run.Within("longest hand-over of ours by release", scene.Percentile(over[holdfast], 100), p.ttl/2) // else it was no release
	if of.Store == onEtcd && !run.Short {
		ratio("acquire", t.acquired, ownSession, 0.5)
		ratio("hand-over", over, bare, 1.5)
	}
	return deaths(ctx, b, p, of, run)
}

// compared runs a server for a comparison, and says how its names are held.
func compared(ctx context.Context, store string, p sizes) (b *bed, of holding, err error) {
	if b, err = newBed(ctx, store, p.ttl); err != nil {
		return nil, of, err
	}
	of = holding{Store: store, TTL: p.ttl}
	if b.etcd != nil {
		of.URL = b.member().Direct()
	} else {
		var conn *pgx.Conn
		if conn, err = b.server.Conn(ctx); err == nil {
			c := conn.Config()
			of.URL = fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", c.User, c.Database, url.QueryEscape(c.Host), c.Port)
			_, err = conn.Exec(ctx, leaderSchema)
			hangUp(conn)
		}
	}
	if err == nil {
		b.place, err = lab.NewPlace(false)
	}
	if err != nil {
		return nil, of, errors.Join(err, b.close())
	}
	return b, of, nil
}

// turns has each way acquire, renew and release a free name, in turns, and another node of ours
// watch that name.
type turns struct {
	p                 sizes
	ways              []string
	all               map[string]candidate
	seen              func(context.Context) (time.Time, error)
	close             func()
	acquired, renewed map[string][]time.Duration
	told              []time.Duration // ours alone: from the call that acquires until another node was told
}

func newTurns(ctx context.Context, p sizes, of holding) (_ *turns, err error) {
	t := &turns{p: p, ways: waysOn(of.Store), all: map[string]candidate{}, acquired: map[string][]time.Duration{}, renewed: map[string][]time.Duration{}}
	of.Name = "turns"
	var end []func()
	t.close = func() {
		for _, f := range end {
			f()
		}
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for _, way := range t.ways {
		of.Way = way
		if t.all[way], err = of.candidate(ctx, "turns"); err != nil {
			return nil, err
		}
		end = append(end, t.all[way].close)
	}
	k, stop, err := of.keeper(ctx, "watcher")
	if err != nil {
		return nil, err
	}
	end = append(end, stop)
	t.seen, err = watching(k, p, of.Name)
	return t, err
}

// timed calls f, which may take no longer than patience.
func (t *turns) timed(ctx context.Context, what string, f func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, t.p.patience)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	took := time.Since(began)
	if err != nil {
		err = fmt.Errorf("%s, after %v: %w", what, took, err)
	}
	return took, err
}

// turn has each way do it twice, in an order that is drawn, and the second time counts: the first
// brings its connection and its code back into the processor's caches, after those of the others.
func (t *turns) turn(ctx context.Context) error {
	for _, i := range rand.Perm(len(t.ways)) {
		way, c := t.ways[i], t.all[t.ways[i]]
		var acquired, renewed, told time.Duration
		for range 2 {
			var err error
			began := time.Now()
			if acquired, err = t.timed(ctx, way+": acquire", func(ctx context.Context) error {
				ok, err := c.try(ctx)
				if err == nil && !ok {
					err = errors.New("it is another's")
				}
				return err
			}); err != nil {
				return err
			}
			if way == holdfast {
				at, err := t.seen(ctx)
				if err != nil {
					return err
				}
				told = at.Sub(began)
			}
			if renewed, err = t.timed(ctx, way+": renew", c.renew); err != nil {
				return err
			}
			if _, err = t.timed(ctx, way+": release", c.release); err != nil {
				return err
			}
		}
		t.acquired[way], t.renewed[way] = append(t.acquired[way], acquired), append(t.renewed[way], renewed)
		if way == holdfast {
			t.told = append(t.told, told)
		}
	}
	return nil
}

func (t *turns) print(run *scene.Run) {
	for _, way := range t.ways {
		run.Spread("acquire, "+way, t.acquired[way])
		run.Spread("renew, "+way, t.renewed[way])
	}
	run.Spread("a watch is told", t.told)
}

// watching has a Keeper watch the name, and returns what waits until it was told once more that the
// name is held.
func watching(k *lease.Keeper, p sizes, name string) (seen func(context.Context) (time.Time, error), err error) {
	puts, synced := make(chan time.Time, 16), make(chan struct{})
	if _, err = k.Watch(name, func(e lease.Event) {
		switch e.Kind {
		case lease.EventSynced:
			close(synced)
		case lease.EventPut:
			select {
			case puts <- time.Now():
			default:
			}
		}
	}); err != nil {
		return nil, err
	}
	select {
	case <-synced:
	case <-time.After(p.patience):
		return nil, fmt.Errorf("a watch did not begin within %v", p.patience)
	}
	return func(ctx context.Context) (time.Time, error) {
		select {
		case at := <-puts:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-time.After(p.patience):
			return time.Time{}, fmt.Errorf("the watch was not told of an acquisition within %v", p.patience)
		}
	}, nil
}

// won is when a waiter had its name.
type won struct {
	at  time.Time
	err error
}

// waits has a candidate wait for its name.
func waits(ctx context.Context, c candidate) <-chan won {
	done := make(chan won, 1)
	go func() { err := c.await(ctx); done <- won{time.Now(), err} }()
	return done
}

// settle is for how long the waiter has been waiting when the holder lets go: longer than the 100 ms
// after which etcd serves a watch that began in the past.
const settle = 200 * time.Millisecond

// handOvers times from before a holder releases until the waiter has the name. The first rounds are
// not counted.
func handOvers(ctx context.Context, p sizes, of holding) (map[string][]time.Duration, error) {
	ways := waysOn(of.Store)
	pairs, got := map[string][2]candidate{}, map[string][]time.Duration{}
	for _, way := range ways {
		of.Way, of.Name = way, "hand-over"
		var pair [2]candidate
		for i := range pair {
			c, err := of.candidate(ctx, fmt.Sprint("candidate-", i))
			if err != nil {
				return nil, err
			}
			defer c.close()
			pair[i] = c
		}
		pairs[way] = pair
	}
	for round := range p.handOvers + 2 {
		one, cancel := context.WithTimeout(ctx, time.Minute)
		waiting := map[string]<-chan won{}
		err := error(nil)
		for _, way := range ways {
			err = errors.Join(err, pairs[way][0].await(one))
			waiting[way] = waits(one, pairs[way][1])
		}
		err = errors.Join(err, lab.Pause(one, settle))
		for _, i := range rand.Perm(len(ways)) {
			way := ways[i]
			if err == nil && len(waiting[way]) > 0 {
				err = fmt.Errorf("the waiter did not wait: %w", (<-waiting[way]).err)
			}
			if err != nil {
				break
			}
			began := time.Now()
			err = pairs[way][0].release(one)
			w := <-waiting[way]
			err = errors.Join(err, w.err, pairs[way][1].release(one))
			if round >= 2 {
				got[way] = append(got[way], w.at.Sub(began))
			}
			if err != nil {
				err = fmt.Errorf("hand-over by %s: %w", way, err)
			}
		}
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

// holder acquires, says so, and keeps the name until it is killed.
func holder(arg json.RawMessage) error {
	var h holding
	if err := json.Unmarshal(arg, &h); err != nil {
		return err
	}
	ctx := context.Background()
	c, err := h.candidate(ctx, fmt.Sprint("holder-", os.Getpid()))
	if err != nil {
		return err
	}
	if ok, err := c.try(ctx); err != nil || !ok {
		return fmt.Errorf("%s: not acquired: %w", h.Name, err)
	}
	fmt.Println(`"held"`)
	for lab.Pause(ctx, h.TTL/3) == nil {
		if h.Store == onPostgres && h.Way != holdfast { // the others renew by themselves
			if err := c.renew(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// never is a hand-over that did not come.
const never = time.Duration(math.MaxInt64)

// death has a process hold the name and another client wait for it, sends a signal to the holder at
// some moment between two renewals, and returns how long after that the other had it.
func (h holding) death(ctx context.Context, b *bed, s syscall.Signal, within time.Duration) (time.Duration, error) {
	p, err := start[string](b.place, "holder", h.Name, h)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Kill() }()
	if _, err := p.Await(ctx, time.Minute, "held", func(string) bool { return true }); err != nil {
		return 0, err
	}
	c, err := h.candidate(ctx, "waiter")
	if err != nil {
		return 0, err
	}
	defer c.close()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	done := waits(waiting, c)
	select {
	case w := <-done:
		return 0, fmt.Errorf("%s %s: the waiter had it before its holder ended: %w", h.Way, h.Name, w.err)
	case <-time.After(time.Second + rand.N(h.TTL/3)):
	}
	began := time.Now()
	if err := p.Signal(s); err != nil {
		return 0, err
	}
	select {
	case w := <-done:
		return w.at.Sub(began), w.err
	case <-time.After(within):
		cancel()
		<-done // before its client is closed
		return never, nil
	}
}

// deaths kills and stops holders of every way, all at once, on names of their own.
func deaths(ctx context.Context, b *bed, p sizes, of holding, run *scene.Run) error {
	overdue := 10 * time.Second // on a machine that is busy
	took := map[string][]time.Duration{}
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	signals := map[syscall.Signal]string{syscall.SIGKILL: "kill -9 of the holder", syscall.SIGSTOP: "the holder stopped"}
	for s, what := range signals {
		for _, way := range waysOn(of.Store) {
			for i := range p.deaths {
				h := of
				h.Way, h.Name = way, fmt.Sprintf("death/%s/%s/%d", way, what, i)
				all.Go(func() {
					d, err := h.death(ctx, b, s, p.ttl+overdue)
					mu.Lock()
					defer mu.Unlock()
					failed, took[what+", "+way] = errors.Join(failed, err), append(took[what+", "+way], d)
				})
			}
		}
	}
	all.Wait()
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, way := range waysOn(of.Store) {
			run.Spread(signals[s]+", "+way, took[signals[s]+", "+way])
		}
		longest := scene.Percentile(took[signals[s]+", "+holdfast], 100)
		run.Within("longest of ours, "+signals[s], longest, p.ttl+overdue)
		if s == syscall.SIGKILL && failed == nil && longest < p.ttl/3 {
			run.Unsafe("a name was taken over %v after its holder was killed: nothing but the end of the TTL tells that it is dead", longest)
		}
	}
	return cmp.Or(failed, ctx.Err())
}
