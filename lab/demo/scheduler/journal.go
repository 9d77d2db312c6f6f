//go:build linux

package scheduler

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// entryKind tells what an entry is about.
type entryKind uint8

const (
	began entryKind = iota + 1
	ticked
	worked
)

// entry is one attempt to write.
type entry struct {
	node    string
	token   lease.Token
	at      time.Duration
	kind    entryKind
	number  int // of the tick or job
	outcome stage.Outcome
}

// pass is one message that a gate let through.
type pass struct {
	node  string
	token lease.Token
	at    time.Duration
}

// journal is the resource that the singleton works on. It outlives every host
// and stands behind a fence: who comes with a token lower than one it has seen
// is refused. It keeps all attempts, for the verdict. Safe for concurrent use.
type journal struct {
	fence *lease.Fence

	mu      sync.Mutex // for what is read from outside, too; taken inside the fence
	entries []entry
	jobs    map[int]bool // done
	ticks   int
	began   string // the node that began last
	passes  []pass
}

func newJournal() *journal {
	return &journal{fence: lease.NewFence(0), jobs: map[int]bool{}}
}

// begin advances the fence to token and then returns the last tick.
func (j *journal) begin(node string, token lease.Token) (ticks int, err error) {
	err = j.write(entry{node: node, token: token, kind: began}, func(e *entry) {
		j.began, ticks = e.node, j.ticks
	})
	return ticks, err
}

func (j *journal) tick(node string, token lease.Token, number int) error {
	return j.write(entry{node: node, token: token, kind: ticked, number: number}, func(*entry) { j.ticks = number })
}

func (j *journal) job(node string, token lease.Token, number int) error {
	return j.write(entry{node: node, token: token, kind: worked, number: number}, func(e *entry) {
		if j.jobs[number] {
			e.outcome = stage.Repeated
		}
		j.jobs[number] = true
	})
}

// write applies change if the fence lets it, as one step with the check. The
// error is lease.ErrStale.
func (j *journal) write(e entry, change func(*entry)) error {
	err := j.fence.Do(e.token, func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		e.at, e.outcome = stage.Now(), stage.Written
		change(&e)
		j.entries = append(j.entries, e)
		return nil
	})
	if errors.Is(err, lease.ErrStale) {
		j.mu.Lock()
		defer j.mu.Unlock()
		e.at, e.outcome = stage.Now(), stage.Refused
		j.entries = append(j.entries, e)
	}
	return err
}

// passed notes what a gate let through.
func (j *journal) passed(node string, token lease.Token, at time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passes = append(j.passes, pass{node, token, at})
}

// host returns the node that began last.
func (j *journal) host() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began
}

func (j *journal) snapshot() ([]entry, []pass) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries), slices.Clone(j.passes)
}
