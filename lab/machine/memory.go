//go:build linux

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

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

// Heap is what is allocated on the heap of this process, what waits to be collected
// included.
func Heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Peaks keeps the highest figure that each process reached.
type Peaks struct {
	mu  sync.Mutex
	max map[string]uint64
}

// Note takes a figure.
func (p *Peaks) Note(id string, bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.max == nil {
		p.max = map[string]uint64{}
	}
	p.max[id] = max(p.max[id], bytes)
}

// Highest is the highest figure of all, and whose it was.
func (p *Peaks) Highest() (id string, bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.max {
		if b > bytes {
			id, bytes = i, b
		}
	}
	return id, bytes
}

// Watch notes the resident memory of a process so often, until it or ctx ends.
func Watch[R any](ctx context.Context, p *Process[R], every time.Duration, to *Peaks) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		to.Note(p.ID, p.RSS())
		select {
		case <-tick.C:
		case <-p.done:
			return
		case <-ctx.Done():
			return
		}
	}
}
