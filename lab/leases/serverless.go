//go:build linux

package leases

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store"
)

const (
	functionKeys   = 20
	ownersOfAKey   = 8
	leastLife      = 50 * time.Millisecond
	mostLife       = 2 * time.Second
	crashesOf10    = 4
	functionBound  = 3 * time.Second  // beyond the TTL, until what was left behind can be had
	settlePatience = 30 * time.Second // until it is given up
)

// functions is a run of serverless.
type functions struct {
	*bed
	keys   []string
	client *clientv3.Client

	numbers atomic.Uint32 // of processes
	mu      sync.Mutex
	calls   []functionCall
	died    int // with SIGKILL, as they were to
}

// serverless runs many processes at a time, each for a moment, which acquire, renew, hand over and
// release keys by their owners' names (package provider); two of five die by SIGKILL. No key may ever
// have two owners, tokens grow, and a transfer leaves no gap.
func serverless(ctx context.Context, run *scene.Run) {
	length, processes := cmp.Or(run.For, 5*time.Minute), 200
	if run.Short {
		length, processes = cmp.Or(run.For, 5*time.Second), 15
	}
	b := newBed(ctx, run, onEtcd, functionTTLs[0])
	defer b.close()
	f := &functions{bed: b}
	for i := range functionKeys {
		f.keys = append(f.keys, fmt.Sprint("key-", i))
	}
	f.client = holding{URL: b.member().Direct()}.etcd()
	b.atEnd(func() { _ = f.client.Close() })
	began := lab.Now()
	end := began + length
	forAll(processes, processes, func(i int) error {
		rng := rand.New(rand.NewPCG(run.Seed, uint64(i)))
		for lab.Now() < end && ctx.Err() == nil {
			f.one(ctx, rng)
		}
		return ctx.Err()
	})
	took := lab.Now() - began
	free := f.settle(ctx)
	history := f.history(ctx)
	n := f.numbers.Load()
	run.Figure("processes", "%d in %v, %.1f a second, %d at a time", n, took.Round(time.Second), float64(n)/took.Seconds(), processes)
	run.Figure("died by SIGKILL", "%d", f.died)
	v := judgeFunctions(f.calls, history)
	v.report(run)
	run.Within("longest until a key is free when all are gone", scene.Percentile(free, 100), slices.Max(functionTTLs)+functionBound)
	if v.moves == 0 || f.died == 0 || v.changes == 0 {
		scene.Check(fmt.Errorf("%d moves, %d crashes, %d changes of owner: this shows nothing", v.moves, f.died, v.changes))
	}
}

// one starts a process, waits until it is gone, and keeps its calls.
func (f *functions) one(ctx context.Context, rng *rand.Rand) {
	n := f.numbers.Add(1)
	key := f.keys[n%functionKeys]
	set := functionSettings{Process: n, URL: f.member().Direct(), Key: key, Owner: ownerOf(key, rng), Life: leastLife + time.Duration(rng.Int64N(int64(mostLife-leastLife))),
		Crash: rng.IntN(10) < crashesOf10, Seed: rng.Uint64()}
	p := scene.Must(lab.Start[functionCall](nil, "", fmt.Sprint("function-", n), childEnv, set))
	select {
	case <-p.Done():
	case <-ctx.Done():
		scene.Check(p.Kill())
		return
	}
	calls := callsOf(p.Said(), lab.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, calls...)
	switch err := p.Err(); {
	case err == nil:
	case err.Error() != "signal: killed":
		scene.Check(fmt.Errorf("process %d ended by itself, of a life of %v: %w", n, set.Life, err))
	case set.Crash: // else it had not come to its end in time, on a busy machine
		f.died++
	}
}

// settle takes every key for an owner of its own, and returns how long that took.
func (f *functions) settle(ctx context.Context) []time.Duration {
	p := scene.Must(provider.New(scene.Must(etcd.New(f.client))))
	began := lab.Now()
	took := make([]time.Duration, functionKeys)
	forAll(functionKeys, functionKeys, func(key int) error {
		took[key] = await(ctx, began, settlePatience, f.keys[key]+" is free", func() bool {
			r, _ := p.Acquire(ctx, f.keys[key], "last", functionTTLs[0]) // an error: await says that it is not free
			return r.Acquired
		})
		return nil
	})
	return took
}

// history reads what became of the keys off etcd's own history.
func (f *functions) history(ctx context.Context) map[string][]keyChange {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	keys := map[string]string{}
	for _, key := range f.keys {
		keys[etcd.DefaultPrefix+scene.Must(provider.Name(key))] = key
	}
	last := scene.Must(f.client.Put(ctx, "end", ""))
	history := map[string][]keyChange{}
	for w := range f.client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		scene.Check(w.Err())
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return history
			}
			key, ok := keys[string(e.Kv.Key)]
			if !ok {
				continue
			}
			c := keyChange{revision: uint64(e.Kv.ModRevision)}
			if e.Type == clientv3.EventTypePut {
				c.owner = scene.Must(ownerIn(string(e.Kv.Value)))
			}
			history[key] = append(history[key], c)
		}
	}
	scene.Check(fmt.Errorf("etcd's history ends: %w", ctx.Err()))
	return nil
}

// ownerIn reads the owner's name off a record's value, on its own.
func ownerIn(value string) (string, error) {
	_, text, ok := strings.Cut(value, "{")
	if !ok {
		return "", fmt.Errorf("no record: %q", value)
	}
	var r struct{ ID string }
	if err := json.Unmarshal([]byte("{"+text), &r); err != nil || r.ID == "" {
		return "", fmt.Errorf("no owner: %q: %w", value, err)
	}
	return r.ID, nil
}

// functionSettings are what such a process is started with.
type functionSettings struct {
	Process uint32 // its number, from 1
	URL     string // of etcd
	Key     string
	Owner   string
	Life    time.Duration // from its first instruction on
	Crash   bool          // it ends with SIGKILL then, whatever it is doing
	Seed    uint64
}

// ownerOf draws one of a key's owners: an owner has one key.
func ownerOf(key string, r *rand.Rand) string {
	return fmt.Sprintf("%s-owner-%d", key, r.IntN(ownersOfAKey))
}

// callOp is what a call does.
type callOp string

const (
	opAcquire  callOp = "acquire"
	opRenew    callOp = "renew"
	opRelease  callOp = "release"
	opTransfer callOp = "transfer"
)

// callOutcome is what a call returned.
type callOutcome string

const (
	isNo      callOutcome = "no"
	isYes     callOutcome = "yes"
	isUnknown callOutcome = "unknown" // an error; or none, as the process died over it
)

// TTLs of terms. Mostly it is the first; an owner that changes it gets a new term.
var functionTTLs = []time.Duration{2 * time.Second, 3 * time.Second}

const (
	// functionTimeout bounds one call.
	functionTimeout = 2 * time.Second
	// functionGrace is how long a process may outlive its life, to end a call and give up.
	functionGrace = 8 * time.Second
)

// oneFunction is what runs in a process of serverless: it lives shortly, and acts in the name of an
// owner that others may act for as well.
type oneFunction struct {
	functionSettings
	out      *json.Encoder
	leases   *provider.Provider
	random   *rand.Rand
	deadline time.Duration
	now      functionCall // the call that is made
}

// function is such a process, with functionSettings as JSON.
func function(settings string) {
	at := lab.Now()
	runtime.GOMAXPROCS(1)
	f := &oneFunction{out: json.NewEncoder(os.Stdout)}
	scene.Check(json.Unmarshal([]byte(settings), &f.functionSettings))
	life := f.Life
	if !f.Crash {
		life += functionGrace
	}
	time.AfterFunc(life, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	f.deadline, f.random = at+f.Life, rand.New(rand.NewPCG(f.Seed, uint64(f.Process)))
	client := holding{URL: f.URL}.etcd()
	store := scene.Must(etcd.New(client, etcd.WithLogger(zap.NewNop())))
	f.leases = scene.Must(provider.New(functionStore{store, f}))
	f.live()
	scene.Check(client.Close())
}

// live tries to have the key, works under it, and gives it up in one way or another, until its life
// is over.
func (f *oneFunction) live() {
	for lab.Now() < f.deadline {
		ttl := functionTTLs[0]
		if f.random.IntN(10) == 0 {
			ttl = functionTTLs[1]
		}
		if f.acquire(ttl) {
			f.work(ttl)
		}
		f.pause(20*time.Millisecond, 150*time.Millisecond)
	}
}

// work is what the key is for: it renews now and then, and gives the key up, or leaves it behind
// for who acts in this owner's name next.
func (f *oneFunction) work(ttl time.Duration) {
	for range f.random.IntN(4) {
		f.pause(20*time.Millisecond, 300*time.Millisecond)
		if lab.Now() > f.deadline || !f.call(opRenew, "", ttl, func(ctx context.Context, _ *provider.Result) (bool, error) {
			return f.leases.Renew(ctx, f.Key, f.Owner, ttl)
		}) {
			break
		}
	}
	to := ownerOf(f.Key, f.random)
	switch x := f.random.IntN(10); {
	case to != f.Owner && x < 6:
		f.call(opTransfer, to, ttl, func(ctx context.Context, _ *provider.Result) (bool, error) {
			return f.leases.Transfer(ctx, f.Key, f.Owner, to, ttl)
		})
	case x < 9:
		f.call(opRelease, "", ttl, func(ctx context.Context, _ *provider.Result) (bool, error) {
			return true, f.leases.Release(ctx, f.Key, f.Owner)
		})
	}
}

func (f *oneFunction) acquire(ttl time.Duration) bool {
	return f.call(opAcquire, "", ttl, func(ctx context.Context, r *provider.Result) (_ bool, err error) {
		*r, err = f.leases.Acquire(ctx, f.Key, f.Owner, ttl)
		return r.Acquired, err
	})
}

// call makes a call, and says so before and after. What it promises lasts for a TTL from now, unless it
// says another time.
func (f *oneFunction) call(o callOp, to string, ttl time.Duration, do func(context.Context, *provider.Result) (bool, error)) bool {
	f.now = functionCall{Process: f.Process, Op: o, Key: f.Key, Owner: f.Owner, To: to, TTL: ttl, Sent: lab.Now()}
	_ = f.out.Encode(f.now) // an error: no reader is left
	ctx, cancel := context.WithTimeout(context.Background(), functionTimeout)
	defer cancel()
	r := provider.Result{Expires: time.Now().Add(ttl)}
	ok, err := do(ctx, &r)
	if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrBadRecord) || errors.Is(err, lease.ErrInconsistent) {
		f.now.Broken = fmt.Sprintf("process %d: %v: %v", f.Process, o, err)
	}
	switch f.now.Out = isNo; {
	case err != nil:
		f.now.Out = isUnknown
	case ok:
		f.now.Out = isYes
	}
	f.now.End, f.now.Token = lab.Now(), uint64(r.Token)
	f.now.Expires = f.now.End + time.Until(r.Expires) // by the machine's clock
	_ = f.out.Encode(f.now)
	return ok && err == nil
}

func (f *oneFunction) pause(least, most time.Duration) {
	d := least + time.Duration(f.random.Int64N(int64(most-least)))
	time.Sleep(min(d, max(0, f.deadline-lab.Now())))
}

// functionStore notes what the store moved and removed: a judge that does not trust the provider.
type functionStore struct {
	*etcd.Store
	f *oneFunction
}

// Transfer implements store.Transferrer.
func (s functionStore) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	out, err := s.Store.Transfer(ctx, moves)
	for i := range out {
		if err == nil && out[i].OK {
			s.f.now.Old, s.f.now.New = uint64(moves[i].Token), uint64(out[i].Record.Token)
		}
	}
	return out, err
}

// Release implements store.Store.
func (s functionStore) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	out, err := s.Store.Release(ctx, held)
	for i := range out {
		if err == nil && out[i].OK {
			s.f.now.Freed = true
		}
	}
	return out, err
}
