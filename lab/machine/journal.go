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

// Shared is a file that is mapped into the memory of several processes. What one of them
// wrote the others read at once, and it outlives kill -9.
type Shared struct {
	Path  string
	Bytes []byte
}

// MakeShared makes the file, of so many zero bytes, and maps it. It is an error if the file
// exists.
func MakeShared(path string, size int) (*Shared, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	return mapShared(f, size)
}

// OpenShared maps a file that another process made.
func OpenShared(path string) (*Shared, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return mapShared(f, int(info.Size()))
}

func mapShared(f *os.File, size int) (*Shared, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mmap of %d bytes: %w", f.Name(), size, err)
	}
	return &Shared{f.Name(), mem}, nil
}

// Close unmaps the file. Bytes is not to be read after it.
func (s *Shared) Close() error { return unix.Munmap(s.Bytes) }

// Journal is a Shared file of entries that its node adds and others read: noting costs neither
// a lock nor a call of the system. It is as long as it was made; entries that find it full are
// only counted. E holds no pointers. All methods but Close are safe for concurrent use by all
// processes.
type Journal[E any] struct {
	*Shared
	begun *uint64 // entries that were begun, which the file begins with
	slots []slot[E]
}

type slot[E any] struct {
	whole uint64 // set last: 0 if the process died over it
	e     E
}

const journalHead = 8

// MakeJournal makes the file, with room for n entries, and opens it.
func MakeJournal[E any](path string, n int) (*Journal[E], error) {
	if n < 1 {
		return nil, fmt.Errorf("%s: no room for an entry: %d", path, n)
	}
	s, err := MakeShared(path, journalHead+n*int(unsafe.Sizeof(slot[E]{})))
	if err != nil {
		return nil, err
	}
	return journalIn[E](s), nil
}

// OpenJournal opens a file that MakeJournal made.
func OpenJournal[E any](path string) (*Journal[E], error) {
	s, err := OpenShared(path)
	if err != nil {
		return nil, err
	}
	if size := int(unsafe.Sizeof(slot[E]{})); len(s.Bytes) < journalHead+size || (len(s.Bytes)-journalHead)%size != 0 {
		err := fmt.Errorf("%s: %d bytes, not of entries of %d", path, len(s.Bytes), size)
		return nil, errors.Join(err, s.Close())
	}
	return journalIn[E](s), nil
}

func journalIn[E any](s *Shared) *Journal[E] {
	n := (len(s.Bytes) - journalHead) / int(unsafe.Sizeof(slot[E]{}))
	return &Journal[E]{s, (*uint64)(unsafe.Pointer(&s.Bytes[0])), unsafe.Slice((*slot[E])(unsafe.Pointer(&s.Bytes[journalHead])), n)}
}

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
