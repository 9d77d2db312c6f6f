//go:build linux

package bank

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// opening is what every account begins with.
const opening = 1000

// entryKind tells what an entry is about.
type entryKind string

const (
	opened entryKind = "open"
	posted entryKind = "post"
	noted  entryKind = "memo"
)

// entry is one attempt to write.
type entry struct {
	writer
	At      time.Duration
	Kind    entryKind
	ID      string `json:",omitempty"` // posted
	Amount  int    `json:",omitempty"` // posted
	Balance int    `json:",omitempty"` // posted: after it
	Number  int    `json:",omitempty"` // noted
	Outcome stage.Outcome
}

// pass is one message that a gate let through to an account.
type pass struct {
	node  string
	shard string // the name of its lease
	token lease.Token
	at    time.Duration
}

// journal is the ledger of a cluster in one process. It outlives every host, and
// stands behind a fence for each shard. It keeps all attempts, for the verdict.
// Safe for concurrent use.
type journal struct {
	mu       sync.Mutex // taken inside of a fence
	fences   map[string]*lease.Fence
	balances map[string]int
	done     map[string]bool // posts, by id
	entries  []entry
	passes   []pass
}

func newJournal() *journal {
	return &journal{fences: map[string]*lease.Fence{}, balances: map[string]int{}, done: map[string]bool{}}
}

func (j *journal) open(w writer) (balance int, err error) {
	err = j.write(entry{writer: w, Kind: opened}, func(*entry) {
		if _, ok := j.balances[w.Account]; !ok {
			j.balances[w.Account] = opening
		}
		balance = j.balances[w.Account]
	})
	return balance, err
}

func (j *journal) post(w writer, id string, amount, balance int) (isNew bool, err error) {
	err = j.write(entry{writer: w, Kind: posted, ID: id, Amount: amount, Balance: balance}, func(e *entry) {
		if j.done[id] {
			e.Outcome = stage.Repeated
			return
		}
		isNew, j.done[id], j.balances[w.Account] = true, true, balance
	})
	return isNew, err
}

func (j *journal) note(w writer, number int) error {
	return j.write(entry{writer: w, Kind: noted, Number: number}, func(*entry) {})
}

// write applies change if the shard's fence lets it, as one step with the check.
// The error is lease.ErrStale.
func (j *journal) write(e entry, change func(*entry)) error {
	err := j.fence(e.Shard).Do(e.Token, func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		e.At, e.Outcome = stage.Now(), stage.Written
		change(&e)
		j.entries = append(j.entries, e)
		return nil
	})
	if errors.Is(err, lease.ErrStale) {
		j.mu.Lock()
		defer j.mu.Unlock()
		e.At, e.Outcome = stage.Now(), stage.Refused
		j.entries = append(j.entries, e)
	}
	return err
}

func (j *journal) fence(shard string) *lease.Fence {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.fences[shard]
	if f == nil {
		f = lease.NewFence(0)
		j.fences[shard] = f
	}
	return f
}

// passed notes what a gate let through.
func (j *journal) passed(p pass) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passes = append(j.passes, p)
}

func (j *journal) snapshot() ([]entry, []pass) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries), slices.Clone(j.passes)
}
