//go:build linux

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// entryKind tells what an entry is about.
type entryKind uint16

const (
	passed   entryKind = iota + 1 // a gate let a message through
	handled                       // the singleton has a message
	answered                      // an ask had its answer
)

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock; set last: 0 if the process died over it
	token  uint64
	sent   time.Duration // by its sender: handled, answered
	seq    uint64        // of the sender, from 1: handled
	sender uint32        // of the cluster: handled
	name   uint16        // of the singleton, by number
	kind   entryKind
}

// journal is a file that its node writes and everybody reads, mapped into
// memory: noting costs neither a lock nor a call of the system, and what was
// noted outlives kill -9. It is as long as it was made; what finds it full is
// counted only.
type journal struct {
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
	return &journal{mem: mem, begun: (*uint64)(unsafe.Pointer(&mem[0])),
		entries: unsafe.Slice((*entry)(unsafe.Pointer(&mem[journalHead])), n)}, nil
}

// note adds e; its time must not be 0. It never blocks, and is safe for
// concurrent use by all processes.
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

// len is how many entries were begun.
func (j *journal) len() int { return int(atomic.LoadUint64(j.begun)) }

// read copies the entries; it is an error if some found no room.
func (j *journal) read() ([]entry, error) {
	n := j.len()
	if n > len(j.entries) {
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

// handledSince looks from an entry on for a message handled at some time or
// later, and returns where it looked last.
func (j *journal) handledSince(from int, at time.Duration) (int, bool) {
	n := min(j.len(), len(j.entries))
	for i := from; i < n; i++ {
		e := &j.entries[i]
		switch is := atomic.LoadInt64((*int64)(&e.at)); {
		case is == 0:
			return i, false // being written
		case is >= int64(at) && e.kind == handled:
			return i, true
		}
	}
	return n, false
}

func (j *journal) close() error { return unix.Munmap(j.mem) }
