//go:build linux

package machine

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lab/scene"
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
