//go:build linux

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// TTLs of terms. Mostly it is the first; an owner that changes it gets a new term.
var functionTTLs = []time.Duration{2 * time.Second, 3 * time.Second}

const (
	// functionTimeout bounds one call.
	functionTimeout = 2 * time.Second
	// functionGrace is how long a process may outlive its life, to end a call and give up.
	functionGrace = 8 * time.Second
)

// function is what runs in a process of the serverless check: it lives shortly, and acts in the
// name of an owner that others may act for as well.
type function struct {
	functionSettings
	journal  *journal
	board    *board
	leases   *provider.Provider
	random   *rand.Rand
	calls    uint16
	deadline time.Duration
}

// runFunction is main for such a process.
func runFunction(arg string) error {
	at := lab.Now()
	f := &function{}
	if err := json.Unmarshal([]byte(arg), &f.functionSettings); err != nil {
		return fmt.Errorf("%s=%q: %w", functionEnv, arg, err)
	}
	life := f.Life
	if !f.Crash {
		life += functionGrace
	}
	time.AfterFunc(life, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	f.deadline, f.random = at+f.Life, rand.New(rand.NewPCG(f.Seed, uint64(f.Process)))
	var err error
	if f.journal, err = lab.OpenJournal[entry](f.Journal); err != nil {
		return err
	}
	if f.board, err = openBoard(f.Board); err != nil {
		return err
	}
	f.note(entry{at: at, kind: functionBorn})
	client, err := clientv3.New(clientv3.Config{Endpoints: f.Endpoints, DialTimeout: functionTimeout, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	store, err := etcd.New(client, etcd.WithLogger(zap.NewNop()))
	if err != nil {
		return err
	}
	if f.leases, err = provider.New(functionStore{store, f}); err != nil {
		return err
	}
	f.live()
	return client.Close()
}

// note adds the process and its key.
func (f *function) note(e entry) {
	e.sender, e.name = f.Process, f.Key
	f.journal.Note(e)
}

// live tries to have the key, works under it, and gives it up in one way or another, until its life
// is over.
func (f *function) live() {
	for lab.Now() < f.deadline {
		ttl := functionTTLs[0]
		if f.random.IntN(10) == 0 {
			ttl = functionTTLs[1]
		}
		if f.acquire(ttl) {
			f.work(ttl)
		} else {
			f.board.enqueue(f.Key, f.Owner)
			if f.random.IntN(8) == 0 {
				f.call(opOwner, 0, ttl, func(ctx context.Context) (provider.Result, bool, error) {
					owner, err := f.leases.Owner(ctx, f.key())
					return provider.Result{}, owner == ownerName(f.Owner), err
				})
			}
		}
		f.pause(20*time.Millisecond, 150*time.Millisecond)
	}
}

// work is what the key is for: it renews now and then, and gives the key up, or leaves it behind
// for who acts in this owner's name next.
func (f *function) work(ttl time.Duration) {
	for range f.random.IntN(4) {
		f.pause(20*time.Millisecond, 300*time.Millisecond)
		if lab.Now() > f.deadline || !f.call(opRenew, 0, ttl, func(ctx context.Context) (provider.Result, bool, error) {
			sent := time.Now()
			ok, err := f.leases.Renew(ctx, f.key(), ownerName(f.Owner), ttl)
			return provider.Result{Expires: sent.Add(ttl)}, ok, err
		}) {
			break
		}
	}
	to, queued := f.board.next(f.Key)
	switch x := f.random.IntN(10); {
	case queued && to != f.Owner && x < 7:
		f.call(opTransfer, to, ttl, func(ctx context.Context) (provider.Result, bool, error) {
			sent := time.Now()
			ok, err := f.leases.Transfer(ctx, f.key(), ownerName(f.Owner), ownerName(to), ttl)
			return provider.Result{Expires: sent.Add(ttl)}, ok, err
		})
	case x < 9:
		f.call(opRelease, 0, ttl, func(ctx context.Context) (provider.Result, bool, error) {
			err := f.leases.Release(ctx, f.key(), ownerName(f.Owner))
			return provider.Result{}, err == nil, err
		})
	}
}

func (f *function) key() string { return keyName(f.Run, f.Key) }

func (f *function) acquire(ttl time.Duration) bool {
	return f.call(opAcquire, 0, ttl, func(ctx context.Context) (provider.Result, bool, error) {
		r, err := f.leases.Acquire(ctx, f.key(), ownerName(f.Owner), ttl)
		return r, r.Acquired, err
	})
}

// call makes a call, and notes it before and after.
func (f *function) call(o callOp, to uint16, ttl time.Duration, do func(context.Context) (provider.Result, bool, error)) bool {
	f.calls++
	f.note(entry{at: lab.Now(), kind: callBegan, sent: ttl, seq: packBegan(f.calls, o, f.Owner, to)})
	ctx, cancel := context.WithTimeout(context.Background(), functionTimeout)
	defer cancel()
	r, ok, err := do(ctx)
	e := entry{kind: callEnded, token: uint64(r.Token)}
	out := isNo
	switch {
	case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrBadRecord), errors.Is(err, lease.ErrInconsistent):
		fmt.Fprintf(os.Stderr, "soak function %d: %v: %v\n", f.Process, o, err)
		f.note(entry{at: lab.Now(), kind: callBroken, seq: uint64(o)})
		out = isUnknown
	case err != nil:
		out = isUnknown
	case ok:
		out = isYes
	}
	e.at, e.seq = lab.Now(), packEnded(f.calls, out)
	e.sent = e.at + time.Until(r.Expires) // by the machine's clock
	f.note(e)
	return ok && err == nil
}

func (f *function) pause(least, most time.Duration) {
	d := least + time.Duration(f.random.Int64N(int64(most-least)))
	time.Sleep(min(d, max(0, f.deadline-lab.Now())))
}

// functionStore notes what the store moved and removed: a judge that does not trust the provider.
type functionStore struct {
	*etcd.Store
	f *function
}

// Transfer implements lease.TransferStore.
func (s functionStore) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	out, err := s.Store.Transfer(ctx, moves)
	for i := range out {
		if err == nil && out[i].OK {
			s.f.note(entry{at: lab.Now(), kind: recordMoved, token: uint64(moves[i].Token), seq: uint64(out[i].Record.Token)})
		}
	}
	return out, err
}

// Release implements lease.Store.
func (s functionStore) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	out, err := s.Store.Release(ctx, held)
	for i := range out {
		if err == nil && out[i].OK {
			s.f.note(entry{at: lab.Now(), kind: recordFreed, token: uint64(held[i].Token), seq: uint64(s.f.calls)})
		}
	}
	return out, err
}
