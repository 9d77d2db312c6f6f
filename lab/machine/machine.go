//go:build linux

// Package machine is a laboratory of real processes (Linux): what the checks in
// lab/nodes and lab/leases need to start processes, to stand between them, and to
// note what they see.
//
//   - Process: a child that dies with its parent, takes orders and tells reports over pipes; Place:
//     a network namespace that it may be in.
//   - Links: nodes reach each other through the TCP proxies of package faultlink, which delay,
//     throttle, hold back, cut and count.
//   - Now and Clock: the machine's one monotonic clock, by which the notes of all
//     processes compare.
//   - EtcdHistory and Migrate: what both ask of servers.
//   - Journal: what a node notes, in a file in the memory of several processes, which outlives
//     kill -9.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/store"
)

// Now reads the machine's monotonic clock, which is the same for all processes.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// Clock is the machine's, so that the readings of all Keepers compare; from a reading on at a quarter of
// its rate, if that is not zero.
type Clock struct{ Slow store.Reading }

// Now implements store.Clock.
func (c Clock) Now() store.Reading {
	r := store.Reading{Mono: Now(), Wall: time.Now().UnixNano()}
	if c.Slow != (store.Reading{}) {
		r.Mono, r.Wall = c.Slow.Mono+(r.Mono-c.Slow.Mono)/4, c.Slow.Wall+(r.Wall-c.Slow.Wall)/4
	}
	return r
}

// AfterFunc implements store.Clock.
func (Clock) AfterFunc(d time.Duration, f func()) store.Timer { return time.AfterFunc(d, f) }

// Until calls is every 5 ms until it is true. ErrNever says that it was not within so long.
func Until(ctx context.Context, within time.Duration, what string, is func() bool) error {
	for end := Now() + within; !is(); {
		if Now() >= end {
			return fmt.Errorf("%s: %w within %v", what, ErrNever, within)
		}
		if err := Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Pause waits for d or for ctx to end.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RSS is the resident memory of a process that it shares with nobody, in bytes; 0 if
// there is no such process.
func RSS(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseUint(string(fields[2]), 10, 64)
	return (resident - min(resident, shared)) * uint64(os.Getpagesize())
}

// Live is Heap after a garbage collection.
func Live() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	return Heap()
}

// Processor is the processor time that this process has used.
func Processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process: it has no reason to fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Heap is what is allocated on the heap of this process, what waits to be collected
// included.
func Heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// burnEnv makes Burn burn.
const burnEnv = "HOLDFAST_CLUSTER_BURN"

// Burn uses a processor until it is killed, if this process was started for that.
func Burn() {
	for os.Getenv(burnEnv) != "" {
	}
}

// Burners starts n processes of this program, which must call Burn first, and returns
// what ends them.
func Burners(n int) (end func() error) {
	var all []*child.Process
	end = func() (err error) {
		for _, p := range all {
			err = errors.Join(err, p.Kill())
		}
		return err
	}
	for range n {
		cmd := exec.Command(scene.Must(os.Executable()))
		cmd.Env = append(os.Environ(), burnEnv+"=1", "GOMAXPROCS=1")
		all = append(all, scene.Must(child.Start(cmd)))
	}
	return end
}

// Journal is a file of entries that its node adds and others read, mapped into the memory of all of
// them: what one wrote the others read at once, it outlives kill -9, and noting costs neither
// a lock nor a call of the system. It is as long as it was made; entries that find it full are
// only counted. E holds no pointers. All methods but Close are safe for concurrent use by all
// processes.
type Journal[E any] struct {
	Path  string
	bytes []byte
	begun *uint64 // entries that were begun, which the file begins with
	slots []slot[E]
}

type slot[E any] struct {
	whole uint64 // set last: 0 if the process died over it
	e     E
}

const journalHead = 8

// MakeJournal makes the file, with room for n entries, and opens it. It is a failure if the file
// exists. Like OpenJournal and Read it fails by scene.Check.
func MakeJournal[E any](path string, n int) *Journal[E] {
	return mapJournal[E](path, os.O_CREATE|os.O_EXCL, int64(n))
}

// OpenJournal opens a file that MakeJournal made.
func OpenJournal[E any](path string) *Journal[E] { return mapJournal[E](path, 0, 0) }

func mapJournal[E any](path string, how int, n int64) *Journal[E] {
	f := scene.Must(os.OpenFile(path, os.O_RDWR|how, 0o600))
	defer f.Close()
	each := int64(unsafe.Sizeof(slot[E]{}))
	if n > 0 {
		scene.Check(f.Truncate(journalHead + n*each))
	}
	size := scene.Must(f.Stat()).Size()
	if n = (size - journalHead) / each; n < 1 || size != journalHead+n*each {
		scene.Check(fmt.Errorf("%s: %d bytes, not of entries of %d", path, size, each))
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	scene.Check(err, fmt.Sprintf("%s: mmap of %d bytes", path, size))
	slots := unsafe.Slice((*slot[E])(unsafe.Pointer(&mem[journalHead])), n)
	return &Journal[E]{path, mem, (*uint64)(unsafe.Pointer(&mem[0])), slots}
}

// Close unmaps the file. Nothing is to be read after it.
func (j *Journal[E]) Close() error { return unix.Munmap(j.bytes) }

// Note adds e. It never blocks.
func (j *Journal[E]) Note(e E) {
	i := atomic.AddUint64(j.begun, 1) - 1
	if i < uint64(len(j.slots)) {
		j.slots[i].e = e
		atomic.StoreUint64(&j.slots[i].whole, 1)
	}
}

// Len is how many entries were begun, those that found no room included.
func (j *Journal[E]) Len() int { return int(atomic.LoadUint64(j.begun)) }

// At is entry i, the first being 0; false if it is not there: being written, cut off by its
// process's death, not begun, or without room.
func (j *Journal[E]) At(i int) (e E, ok bool) {
	if i >= len(j.slots) || atomic.LoadUint64(&j.slots[i].whole) == 0 {
		return e, false
	}
	return j.slots[i].e, true
}

// Read copies the entries; it is a failure if some found no room.
func (j *Journal[E]) Read() []E {
	n := j.Len()
	if n > len(j.slots) {
		scene.Check(fmt.Errorf("%d entries for a journal of %d: judge nothing", n, len(j.slots)))
	}
	out := make([]E, 0, n)
	for i := range n {
		if e, ok := j.At(i); ok {
			out = append(out, e)
		}
	}
	return out
}

// EtcdHistory calls f with every change of an etcd that was never compacted, the oldest first.
func EtcdHistory(ctx context.Context, client *clientv3.Client, f func(*clientv3.Event)) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 2*time.Minute)
	defer cancel()
	last := scene.Must(client.Put(ctx, "lab/end", ""))
	for w := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		scene.Check(w.Err())
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return
			}
			f(e)
		}
	}
	scene.Check(fmt.Errorf("etcd's history ends: %w", ctx.Err()))
}

// Migrate makes the tables of leases on a server, and then runs a statement.
func Migrate(ctx context.Context, s *postgrestest.Server, then string) {
	_, closeStore, err := open.Open(ctx, s.URL()+"&holdfast_migrate=true")
	scene.Check(err)
	scene.Check(errors.Join(closeStore(), s.Exec(ctx, then)))
}

// Place is a thread with a network namespace of its own, for as long as it lives; nil is that of this process.
type Place struct {
	jobs  chan func()
	Path  string // of the namespace
	begun chan struct{}
	done  chan struct{}
}

// NewPlace makes one.
func NewPlace() (*Place, error) {
	p := &Place{jobs: make(chan func()), begun: make(chan struct{}), done: make(chan struct{})}
	ready := make(chan error, 1)
	var serve func()
	serve = func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if unix.Gettid() == os.Getpid() {
			// What is in /proc/net is of this thread: it stays where it is, and is kept
			// busy until another goroutine has another thread.
			go serve()
			<-p.begun
			runtime.UnlockOSThread()
			return
		}
		close(p.begun)
		defer close(p.done)
		err := unix.Unshare(unix.CLONE_NEWNET)
		p.Path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		if ready <- err; err != nil {
			return
		}
		for f := range p.jobs {
			f()
		}
	}
	go serve()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return p, nil
}

// Do runs f in the namespace and returns what it does.
func (p *Place) Do(f func() error) error {
	if p == nil {
		return f()
	}
	err := make(chan error, 1)
	p.jobs <- func() { err <- f() }
	return <-err
}

// IP runs commands of ip(8) there.
func (p *Place) IP(commands ...string) error {
	var out bytes.Buffer
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n")+"\n"), &out, &out
	if err := p.Do(cmd.Run); err != nil {
		return fmt.Errorf("ip %q: %w: %s", commands, err, out.Bytes())
	}
	return nil
}

// End ends the thread.
func (p *Place) End() {
	close(p.jobs)
	<-p.done
}
