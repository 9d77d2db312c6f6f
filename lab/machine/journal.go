//go:build linux

package machine

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// MakeJournal makes the file, with room for n entries, and opens it. It is an error if the file exists.
func MakeJournal[E any](path string, n int) (*Journal[E], error) {
	if n < 1 {
		return nil, fmt.Errorf("%s: no room for an entry: %d", path, n)
	}
	return mapJournal[E](path, os.O_CREATE|os.O_EXCL, int64(n))
}

// OpenJournal opens a file that MakeJournal made.
func OpenJournal[E any](path string) (*Journal[E], error) { return mapJournal[E](path, 0, 0) }

func mapJournal[E any](path string, how int, n int64) (*Journal[E], error) {
	f, err := os.OpenFile(path, os.O_RDWR|how, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	each := int64(unsafe.Sizeof(slot[E]{}))
	if n > 0 {
		err = f.Truncate(journalHead + n*each)
	}
	info, err2 := f.Stat()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if n = (info.Size() - journalHead) / each; n < 1 || info.Size() != journalHead+n*each {
		return nil, fmt.Errorf("%s: %d bytes, not of entries of %d", path, info.Size(), each)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mmap of %d bytes: %w", path, info.Size(), err)
	}
	return &Journal[E]{path, mem, (*uint64)(unsafe.Pointer(&mem[0])), unsafe.Slice((*slot[E])(unsafe.Pointer(&mem[journalHead])), n)}, nil
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

// Read copies the entries; it is an error if some found no room.
func (j *Journal[E]) Read() ([]E, error) {
	n := j.Len()
	if n > len(j.slots) {
		return nil, fmt.Errorf("%d entries for a journal of %d: judge nothing", n, len(j.slots))
	}
	out := make([]E, 0, n)
	for i := range n {
		if e, ok := j.At(i); ok {
			out = append(out, e)
		}
	}
	return out, nil
}
