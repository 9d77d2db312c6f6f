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
	p := lab.Start[functionCall](nil, "", fmt.Sprint("function-", n), childEnv, set)
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
	keys := map[string]string{}
	for _, key := range f.keys {
		keys[etcd.DefaultPrefix+scene.Must(provider.Name(key))] = key
	}
	history := map[string][]keyChange{}
	lab.EtcdHistory(ctx, f.client, func(e *clientv3.Event) {
		if key, ok := keys[string(e.Kv.Key)]; ok {
			c := keyChange{revision: uint64(e.Kv.ModRevision)}
			if e.Type == clientv3.EventTypePut {
				c.owner = scene.Must(ownerIn(string(e.Kv.Value)))
			}
			history[key] = append(history[key], c)
		}
	})
	return history
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
		if f.call(opAcquire, "", ttl) {
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
		if lab.Now() > f.deadline || !f.call(opRenew, "", ttl) {
			break
		}
	}
	to := ownerOf(f.Key, f.random)
	switch x := f.random.IntN(10); {
	case to != f.Owner && x < 6:
		f.call(opTransfer, to, ttl)
	case x < 9:
		f.call(opRelease, "", ttl)
	}
}

// call makes a call, and says so before and after. What it promises lasts for a TTL from now, unless it
// says another time.
func (f *oneFunction) call(o callOp, to string, ttl time.Duration) (ok bool) {
	f.now = functionCall{Process: f.Process, Op: o, Key: f.Key, Owner: f.Owner, To: to, TTL: ttl, Sent: lab.Now()}
	_ = f.out.Encode(f.now) // an error: no reader is left
	ctx, cancel := context.WithTimeout(context.Background(), functionTimeout)
	defer cancel()
	r, err := provider.Result{Expires: time.Now().Add(ttl)}, error(nil)
	switch o {
	case opAcquire:
		r, err = f.leases.Acquire(ctx, f.Key, f.Owner, ttl)
		ok = r.Acquired
	case opRenew:
		ok, err = f.leases.Renew(ctx, f.Key, f.Owner, ttl)
	case opTransfer:
		ok, err = f.leases.Transfer(ctx, f.Key, f.Owner, to, ttl)
	case opRelease:
		ok, err = true, f.leases.Release(ctx, f.Key, f.Owner)
	}
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

// functionCall is one call of one process, in the name of an owner.
type functionCall struct {
	Process        uint32
	Op             callOp
	Out            callOutcome
	Key, Owner, To string // To: of a transfer
	TTL, Sent      time.Duration
	End            time.Duration // when it returned, or its process was gone
	Expires        time.Duration // of isYes: for how long it was promised
	Token          uint64        // of an acquire
	Old, New       uint64        // tokens, if the store said that it moved the record
	Freed          bool          // the store said that it removed the record
	Broken         string        // an error that must not be
}

func (c functionCall) String() string {
	return fmt.Sprintf("%.6f to %.6f, process %d: %v of %s by %s to %s for %v: %v, token %d until %.6f, moved %d to %d", c.Sent.Seconds(),
		c.End.Seconds(), c.Process, c.Op, c.Key, c.Owner, c.To, c.TTL, c.Out, c.Token, c.Expires.Seconds(), c.Old, c.New)
}

// winner is who has the key by the call.
func (c functionCall) winner() (owner string, ok bool) {
	switch {
	case c.Out != isYes:
		return "", false
	case c.Op == opTransfer:
		return c.To, true
	}
	return c.Owner, c.Op == opAcquire || c.Op == opRenew
}

// ends reports whether the call, which is made in owner's name or hands over to it, may end what
// that owner was promised for a TTL.
func (c functionCall) ends(owner string, ttl time.Duration) bool {
	switch c.Op {
	case opRelease:
		return c.Owner == owner
	case opTransfer:
		return c.Owner == owner || c.To == owner && c.TTL != ttl
	case opAcquire, opRenew:
		return c.Owner == owner && c.TTL != ttl
	}
	return false
}

// keyChange is what became of a key's record, by etcd's own history.
type keyChange struct {
	revision uint64
	owner    string // empty: it is gone
}

// The rules.
const (
	overlaps = "two owners of a key at one time"
	shrunk   = "tokens that did not grow"
	gaps     = "transfers that left a moment in which the key was nobody's"
	untrue   = "promises that etcd's history does not have"
	broken   = "calls that failed in a way that they must not"
)

// functionVerdict is what it shows.
type functionVerdict struct {
	wrong           map[string][]string // by rule
	calls           map[string]int      // by what they did and returned
	promises, stood int                 // to have a key; those that no call ended at once in that owner's name
	moves           int                 // transfers that moved a record
	changes         int                 // of owner, one after the other
}

// judgeFunctions applies all rules to the calls, and to etcd's history of each key.
func judgeFunctions(calls []functionCall, history map[string][]keyChange) *functionVerdict {
	v := &functionVerdict{calls: map[string]int{}, wrong: map[string][]string{}}
	calls = slices.SortedStableFunc(slices.Values(calls), func(a, b functionCall) int { return cmp.Compare(a.Sent, b.Sent) })
	byKey := map[string][]functionCall{}
	for _, c := range calls {
		byKey[c.Key] = append(byKey[c.Key], c)
		v.calls[string(c.Op)+" "+string(c.Out)]++
		if c.Broken != "" {
			v.breaks(broken, c.Broken)
		}
	}
	for key, calls := range byKey {
		v.exclusive(calls)
		v.growing(calls)
		v.gapless(calls, history[key])
	}
	return v
}

func (v *functionVerdict) breaks(rule, line string) { v.wrong[rule] = append(v.wrong[rule], line) }

// callsOf makes calls of what a process said, which ended at some time: each call is said when it
// begins, and again when it has returned. One that never returned ends with its process.
func callsOf(said []functionCall, ended time.Duration) (calls []functionCall) {
	for i, c := range said {
		switch {
		case c.End != 0:
			calls = append(calls, c)
		case i+1 == len(said):
			c.Out, c.End = isUnknown, ended
			calls = append(calls, c)
		}
	}
	return calls
}

// belief is when an owner may count on a key.
type belief struct {
	from, until time.Duration
	owner       string
	by          functionCall
}

// exclusive: while one owner may count on the key no other may. What is promised ends early if
// somebody, in that owner's name, began to give it up afterwards, or was at it meanwhile. A call
// that had returned or whose process was gone before the promise was asked for changes nothing of
// it, though its request may land yet.
func (v *functionVerdict) exclusive(calls []functionCall) {
	byOwner := map[string][]functionCall{} // those that may end something
	for _, c := range calls {
		byOwner[c.Owner] = append(byOwner[c.Owner], c)
		if c.Op == opTransfer && c.To != c.Owner {
			byOwner[c.To] = append(byOwner[c.To], c)
		}
	}
	var all []belief
	for _, c := range calls {
		owner, ok := c.winner()
		if !ok {
			continue
		}
		v.promises++
		b := belief{from: c.End, until: c.Expires, owner: owner, by: c}
		for _, g := range byOwner[owner] {
			if g != c && g.End > c.Sent && g.ends(owner, c.TTL) {
				b.until = min(b.until, max(g.Sent, b.from))
			}
		}
		if b.until > b.from {
			v.stood++
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	last := map[string]belief{}
	for _, b := range all {
		for owner, l := range last {
			if owner != b.owner && l.until > b.from {
				v.breaks(overlaps, fmt.Sprintf("%v\n    and\n  %v", l.by, b.by))
			}
		}
		if l, ok := last[b.owner]; !ok || b.until > l.until {
			last[b.owner] = b
		}
	}
}

// growing: what is asked for after another was told has no lower token, and a higher one if it is
// another's.
func (v *functionVerdict) growing(calls []functionCall) {
	var told []functionCall
	for _, c := range calls {
		if c.Op == opAcquire && c.Out == isYes {
			told = append(told, c)
		}
	}
	byEnd := slices.Clone(told)
	slices.SortFunc(byEnd, func(a, b functionCall) int { return cmp.Compare(a.End, b.End) })
	var highest functionCall
	n := 0
	for _, c := range told { // in the order in which they were asked
		for ; n < len(byEnd) && byEnd[n].End < c.Sent; n++ {
			if byEnd[n].Token > highest.Token {
				highest = byEnd[n]
			}
		}
		if c.Token == 0 || c.Token < highest.Token || c.Token == highest.Token && c.Owner != highest.Owner {
			v.breaks(shrunk, fmt.Sprintf("%v\n    and then\n  %v", highest, c))
		}
	}
	owners := map[uint64]functionCall{}
	for _, c := range told {
		if o, ok := owners[c.Token]; ok && o.Owner != c.Owner {
			v.breaks(shrunk, fmt.Sprintf("one token of two owners: %v\n    and\n  %v", o, c))
		}
		owners[c.Token] = c
	}
}

// gapless: in etcd's history what is moved stands directly behind what it was moved from, and each
// token that an owner was told is of a record of its own.
func (v *functionVerdict) gapless(calls []functionCall, history []keyChange) {
	at, last := map[uint64]int{}, "" // the last owner, also if its record is gone
	for i, x := range history {
		if x.owner == "" {
			continue
		}
		if i > 0 && x.owner != last {
			v.changes++
		}
		at[x.revision], last = i, x.owner
	}
	for _, c := range calls {
		switch {
		case c.Op == opTransfer && c.Freed:
			v.breaks(gaps, "the record was removed: "+c.String())
		case c.Op == opTransfer && c.New > 0:
			v.moves++
			i, ok := at[c.New]
			if !ok || i == 0 || history[i].owner != c.To || history[i-1].revision != c.Old || history[i-1].owner != c.Owner {
				v.breaks(gaps, "not from the one to the other: "+c.String())
			}
		case c.Op == opAcquire && c.Out == isYes:
			if i, ok := at[c.Token]; !ok || history[i].owner != c.Owner {
				v.breaks(untrue, c.String())
			}
		}
	}
}

// report prints the figures and judges them.
func (v *functionVerdict) report(run *scene.Run) {
	run.Figure("calls", "%v", v.calls)
	run.Figure("promises of a key; that stood; changes; moves", "%d; %d; %d; %d", v.promises, v.stood, v.changes, v.moves)
	for rule, lines := range v.wrong {
		run.Unsafe("%d %s:\n  %s", len(lines), rule, strings.Join(lines[:min(len(lines), 10)], "\n  "))
	}
}
