//go:build linux

package torture

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kind tells what an entry is about.
type kind uint16

const (
	passed     kind = iota + 1 // a gate let a message through; at is the reading that decided it
	asked                      // a numbered ask was sent
	handled                    // an actor has an ask, and its lease was alive after the clock was read
	overran                    // an actor has an ask, and its lease was not alive any more
	answered                   // an ask had its answer
	swept                      // an ask of a sweep had its answer
	began                      // an actor was started under a token, and its lease was alive
	lost                       // the context of an actor is done, as its lease was lost
	confirmed                  // the store confirmed a session, which is the token: request sent, reply at, seq is the TTL granted
	disordered                 // a move after which order is not known to be kept
	wrote                      // the store took a write with the token
	refused                    // the store refused a write with the token
	departed                   // the process has left in order
	gaveUp                     // the store is about to be asked to end or move the ownership with the token
	closed                     // the store is about to be asked to end a session, which is the token
	leftState                  // an account that has ended left its state, number seq under the token
	gotState                   // an account began with a state: that left under the token seq, with the number sender
)

var kinds = [...]string{"?", "passed", "asked", "handled", "overran", "answered", "swept", "began", "lost", "confirmed", "disordered",
	"wrote", "refused", "departed", "gave up", "closed", "left its state", "got a state"}

func (k kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock; set last: 0 if the process died over it
	sent   time.Duration
	token  uint64
	seq    uint64 // of the sender to the target, from 1
	sender uint32 // of the cluster
	name   uint16 // of the lease, by number
	target uint16 // singleton or account, by number
	kind   kind
}

// journal is a file that its node writes and everybody reads, mapped into memory:
// what was noted outlives kill -9. It is as long as it was made; what finds it full
// is counted only.
type journal struct {
	path    string
	mem     []byte
	begun   *uint64 // entries that were begun, which the file begins with
	entries []entry
}

const journalHead = 8

// newJournal makes the file, with room for n entries, and opens it.
func newJournal(path string, n int) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(journalHead + int64(n)*int64(unsafe.Sizeof(entry{}))); err != nil {
		return nil, err
	}
	return mapJournal(f)
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapJournal(f)
}

func mapJournal(f *os.File) (*journal, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := (info.Size() - journalHead) / int64(unsafe.Sizeof(entry{}))
	if n < 1 {
		return nil, fmt.Errorf("%s: %d bytes, no room for an entry", f.Name(), info.Size())
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mmap: %w", f.Name(), err)
	}
	return &journal{path: f.Name(), mem: mem, begun: (*uint64)(unsafe.Pointer(&mem[0])),
		entries: unsafe.Slice((*entry)(unsafe.Pointer(&mem[journalHead])), n)}, nil
}

// note adds e; its time must not be 0. It never blocks, and is safe for concurrent
// use.
func (j *journal) note(e entry) {
	i := atomic.AddUint64(j.begun, 1) - 1
	if i >= uint64(len(j.entries)) {
		return
	}
	at := e.at
	e.at = 0
	to := &j.entries[i]
	*to = e
	atomic.StoreInt64((*int64)(&to.at), int64(at))
}

// read copies the entries; it is an error if some found no room.
func (j *journal) read() ([]entry, error) {
	n := atomic.LoadUint64(j.begun)
	if n > uint64(len(j.entries)) {
		return nil, fmt.Errorf("%d entries for a journal of %d: judge nothing", n, len(j.entries))
	}
	out := make([]entry, 0, n)
	for i := range j.entries[:n] {
		e := &j.entries[i]
		if at := atomic.LoadInt64((*int64)(&e.at)); at != 0 {
			out = append(out, *e)
		}
	}
	return out, nil
}

func (j *journal) close() error { return unix.Munmap(j.mem) }
