//go:build linux

package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease/provider"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

const (
	functionKeys   = 20
	ownersOfAKey   = 8
	leastLife      = 50 * time.Millisecond
	mostLife       = 2 * time.Second
	crashesOf10    = 4
	functionRoom   = 600              // entries a second for which the journal has room
	functionBound  = 3 * time.Second  // beyond the TTL, until what was left behind can be had
	settlePatience = 30 * time.Second // until it is given up
)

// functions is a run of the serverless check.
type functions struct {
	r         *report
	bed       *bed // nil: etcd is somewhere else
	endpoints []string
	client    *clientv3.Client
	place     *lab.Place
	dir, run  string
	journal   *journal
	board     *board
	since     int64 // the revision before the run

	numbers atomic.Uint32 // of processes
	alive   atomic.Int32
	mu      sync.Mutex
	errs    []error
}

// serverless runs many processes at a time, each for a moment, which have keys by their owners'
// names.
func serverless(ctx context.Context, args []string, r *report) (err error) {
	var length time.Duration
	var processes int
	var where string
	err = flags("serverless", args, func(fs *flag.FlagSet) {
		fs.DurationVar(&length, "for", 5*time.Minute, "how long")
		fs.IntVar(&processes, "processes", 200, "processes at a time")
		fs.StringVar(&where, "etcd", "local", `host:port of servers, or "local": one is started`)
	})
	if err != nil {
		return err
	}
	if length < time.Second || length > 2*time.Hour || processes < 1 || processes > 1000 || where == "" {
		return errors.New("serverless: -for must be 1s to 2h, -processes 1 to 1000, and -etcd not empty")
	}
	f := &functions{r: r, run: "serverless-" + strconv.FormatUint(rand.Uint64(), 36)}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.open(ctx, where, length); err != nil {
		return err
	}
	return f.measure(ctx, length, processes)
}

func (f *functions) open(ctx context.Context, where string, length time.Duration) (err error) {
	f.endpoints = strings.Split(where, ",")
	if where == "local" {
		if f.bed, err = newBed(ctx, f.r); err != nil {
			return err
		}
		f.endpoints = []string{f.bed.member().Direct()}
	}
	if f.client, err = clientv3.New(clientv3.Config{Endpoints: f.endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}); err != nil {
		return err
	}
	now, err := f.client.Get(ctx, "now")
	if err != nil {
		return err
	}
	f.since = now.Header.Revision
	if f.dir, err = os.MkdirTemp("", "holdfast-serverless-"); err != nil {
		return err
	}
	if f.journal, err = lab.MakeJournal[entry](f.path("journal"), int(length.Seconds()+10)*functionRoom*runtime.NumCPU()); err != nil {
		return err
	}
	if f.board, err = newBoard(f.path("board"), functionKeys); err != nil {
		return err
	}
	f.place, err = lab.NewPlace(false)
	return err
}

func (f *functions) path(name string) string { return filepath.Join(f.dir, name) }

func (f *functions) close() error {
	var errs []error
	if f.place != nil {
		f.place.End()
	}
	if f.board != nil {
		errs = append(errs, f.board.Close())
	}
	if f.journal != nil {
		errs = append(errs, f.journal.Close())
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	if f.client != nil {
		errs = append(errs, f.client.Close())
	}
	if f.bed != nil {
		errs = append(errs, f.bed.close())
	}
	return errors.Join(errs...)
}

// measure keeps so many processes alive for so long, and judges what they noted.
func (f *functions) measure(ctx context.Context, length time.Duration, processes int) error {
	began := lab.Now()
	end := began + length
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			for lab.Now() < end && ctx.Err() == nil {
				if err := f.one(); err != nil {
					f.fail(err)
					return
				}
			}
		})
	}
	var alive []int
	for lab.Now() < end && ctx.Err() == nil {
		if err := lab.Pause(ctx, 100*time.Millisecond); err != nil {
			break
		}
		alive = append(alive, int(f.alive.Load()))
	}
	all.Wait()
	took := lab.Now() - began
	if err := cmp.Or(context.Cause(ctx), errors.Join(f.errs...)); err != nil {
		return err
	}
	free, err := f.settle(ctx)
	if err != nil {
		return err
	}
	es, err := f.journal.Read()
	if err != nil {
		return err
	}
	history, err := f.history(ctx)
	if err != nil {
		return err
	}
	return f.report(judgeFunctions(functionEvidence{es, history}), took, processes, alive, free)
}

func (f *functions) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// one starts a process, and waits until it is gone.
func (f *functions) one() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n := f.numbers.Add(1)
	key := uint16(n % functionKeys)
	set := functionSettings{Process: n, Endpoints: f.endpoints, Run: f.run, Journal: f.path("journal"), Board: f.path("board"),
		Key: key, Owner: key*ownersOfAKey + uint16(rand.IntN(ownersOfAKey)), Life: leastLife + time.Duration(rand.Int64N(int64(mostLife-leastLife))),
		Crash: rand.IntN(10) < crashesOf10, Seed: rand.Uint64()}
	text, err := json.Marshal(set)
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), functionEnv+"="+string(text), "GOMAXPROCS=1", "GOGC=400")
	cmd.Stderr = os.Stderr
	if err := f.place.Start(cmd); err != nil {
		return err
	}
	f.alive.Add(1)
	err = cmd.Wait()
	f.alive.Add(-1)
	var killed uint64
	switch {
	case err == nil:
	case err.Error() != "signal: killed":
		return fmt.Errorf("process %d ended by itself, of a life of %v: %w", n, set.Life, err)
	case set.Crash:
		killed = 1
	default: // it had not come to its end in time, on a busy machine
		killed = 2
	}
	f.journal.Note(entry{at: lab.Now(), kind: functionDead, sender: n, name: key, seq: killed})
	return nil
}

// settle takes every key for an owner of its own, and returns how long that took.
func (f *functions) settle(ctx context.Context) ([]time.Duration, error) {
	store, err := etcd.New(f.client)
	if err != nil {
		return nil, err
	}
	p, err := provider.New(store)
	if err != nil {
		return nil, err
	}
	began := lab.Now()
	took := make([]time.Duration, functionKeys)
	errs := make([]error, functionKeys)
	var all sync.WaitGroup
	for key := range functionKeys {
		all.Go(func() {
			for took[key] == 0 && errs[key] == nil {
				r, err := p.Acquire(ctx, keyName(f.run, uint16(key)), "last", functionTTLs[0])
				switch {
				case r.Acquired:
					took[key] = lab.Now() - began
				case lab.Now()-began > settlePatience:
					errs[key] = fmt.Errorf("key %d is not free after %v: %+v, %w", key, settlePatience, r, err)
				default:
					errs[key] = lab.Pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return took, errors.Join(errs...)
}

// history reads what became of the keys off etcd's own history.
func (f *functions) history(ctx context.Context) (map[uint16][]keyChange, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	numbers := map[string]uint16{}
	for key := range uint16(functionKeys) {
		name, err := provider.Name(keyName(f.run, key))
		if err != nil {
			return nil, err
		}
		numbers[etcd.DefaultPrefix+name] = key
	}
	last, err := f.client.Put(ctx, f.run+"/end", "")
	if err != nil {
		return nil, err
	}
	history := map[uint16][]keyChange{}
	for w := range f.client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(f.since+1)) {
		if err := w.Err(); err != nil {
			return nil, err
		}
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return history, nil
			}
			key, ok := numbers[string(e.Kv.Key)]
			if !ok {
				continue
			}
			c := keyChange{revision: uint64(e.Kv.ModRevision)}
			if e.Type == clientv3.EventTypePut {
				if c.owner, err = ownerIn(string(e.Kv.Value)); err != nil {
					return nil, fmt.Errorf("the key %q: %w", e.Kv.Key, err)
				}
			}
			history[key] = append(history[key], c)
		}
	}
	return nil, fmt.Errorf("etcd's history ends: %w", ctx.Err())
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

// report prints the figures, and judges the bounds.
func (f *functions) report(v *functionVerdict, took time.Duration, processes int, alive []int, free []time.Duration) error {
	slices.Sort(alive)
	if len(alive) == 0 {
		alive = []int{0}
	}
	f.r.printf("%d processes in %v, %.1f a second, each alive for %v to %v of its own; at a time %d (p50), %d (p5), of %d asked for", v.processes,
		took.Round(time.Second), float64(v.processes)/took.Seconds(), leastLife, mostLife, alive[len(alive)/2], alive[len(alive)/20], processes)
	f.r.printf("%d died by SIGKILL, %d of all in the middle of a call; %d had to be killed %v after their lives", v.died, v.diedInCalls, v.overdue,
		functionGrace)
	f.r.spread("life, from the first instruction", v.lives)
	for o := opAcquire; o <= opOwner; o++ {
		n := v.calls[o]
		f.r.printf("%-9s %6d yes, %6d no, %5d unknown", o, n[isYes], n[isNo], n[isUnknown])
		f.r.spread(o.String(), v.took[o])
	}
	f.r.printf("%d promises of a key, of which %d stood for a while; %d changes of owner; %d moves, %d transfers that found it done", v.promises,
		v.stood, v.changes, v.moves, v.repeated)
	f.r.spread("from a move until the queued one knew", v.followed)
	for what, lines := range map[string][]string{"overlap": v.overlaps, "token": v.shrunk, "gap": v.gaps, "untrue": v.untrue} {
		for _, l := range lines[:min(len(lines), 10)] {
			f.r.printf("%s:\n  %s", what, l)
		}
	}
	f.r.atMost("two owners of a key at one time", float64(len(v.overlaps)), 0, "")
	f.r.atMost("tokens that did not grow", float64(len(v.shrunk)), 0, "")
	f.r.atMost("transfers that left a gap", float64(len(v.gaps)), 0, "")
	f.r.atMost("promises that etcd's history does not have", float64(len(v.untrue)), 0, "")
	f.r.atMost("calls that failed in a way that they must not", float64(v.broken), 0, "")
	f.r.within("longest until a key is free when all are gone", lab.Percentile(free, 100), slices.Max(functionTTLs)+functionBound)
	if f.r.broken == 0 && (v.moves == 0 || v.died == 0 || v.changes == 0) {
		return errors.New("serverless: nothing was judged: no moves, no crashes, or no changes of owner")
	}
	return nil
}
