//go:build linux

package bank

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/sharding"
)

const (
	accounts = 40
	// tellers make transfers, each one after the other.
	tellers       = 6
	transferEvery = 15 * time.Millisecond
	memoEvery     = 100 * time.Millisecond
)

func accountID(i int) string { return fmt.Sprintf("account-%d", i) }

// bank sends from a node that hosts no account: its tellers make transfers, a
// withdrawal and then a deposit, and ask for each until there is a receipt.
// Besides, every account is told a numbered memo, every so often.
type bank struct {
	region   *sharding.Region
	patience time.Duration // of one ask
	books    *books
	timeline *stage.Timeline
	now      func() time.Duration // by the clock of those who judge

	end     chan struct{}
	running sync.WaitGroup
}

func startBank(region *sharding.Region, ttl time.Duration, b *books, t *stage.Timeline, now func() time.Duration) *bank {
	k := &bank{region: region, patience: max(ttl/4, 100*time.Millisecond), books: b, timeline: t, now: now, end: make(chan struct{})}
	t.Say("bank", "%d tellers transfer money among %d accounts; each account gets a memo every %v", tellers, accounts, memoEvery)
	for range tellers {
		k.running.Go(k.teller)
	}
	k.running.Go(k.memos)
	return k
}

// stop ends new transfers and memos, and waits for the receipts that are missing.
func (k *bank) stop(ctx context.Context) error {
	close(k.end)
	done := make(chan struct{})
	go func() { k.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		k.books.abandon()
		<-done
		return fmt.Errorf("transfers are not finished: %w", context.Cause(ctx))
	}
}

func (k *bank) teller() {
	for k.pause(transferEvery) {
		from, to := rand.IntN(accounts), rand.IntN(accounts-1)
		if to >= from {
			to++
		}
		n, amount := k.books.begin(), 1+rand.IntN(20)
		if k.ask(accountID(from), withdraw{n, amount}) && k.ask(accountID(to), deposit{n, amount}) {
			k.books.finished(n)
		}
	}
}

// ask sends msg until there is a receipt. An ask that was not answered may have
// been done all the same: so each has a number, by which the ledger knows it.
func (k *bank) ask(id string, msg any) bool {
	for !k.books.abandoned() {
		ctx, cancel := context.WithTimeout(context.Background(), k.patience)
		_, err := sharding.Ask[receipt](ctx, k.region, id, msg)
		cancel()
		if err == nil {
			return true
		}
		k.books.retried()
		time.Sleep(k.patience / 10)
	}
	return false
}

func (k *bank) memos() {
	for number := 1; k.pause(memoEvery); number++ {
		k.books.memo(k.now())
		for i := range accounts {
			if err := k.region.Tell(accountID(i), memo{number}); err != nil {
				k.timeline.Say("bank", "%v", err)
			}
		}
	}
}

// pause returns false when the bank is closing.
func (k *bank) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-k.end:
		return false
	}
}

// books is what the bank did and was told. Safe for concurrent use.
type books struct {
	mu      sync.Mutex
	begun   int // transfers, numbered from 1
	done    map[int]bool
	retries int
	memos   []time.Duration // when each was sent, to all accounts
	given   bool            // up
}

func (b *books) begin() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	return b.begun
}

func (b *books) finished(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done == nil {
		b.done = map[int]bool{}
	}
	b.done[n] = true
}

func (b *books) retried() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retries++
}

func (b *books) memo(at time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memos = append(b.memos, at)
}

func (b *books) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = true
}

func (b *books) abandoned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given
}

// fill puts the books among the evidence. Nobody writes to them any more.
func (b *books) fill(e *evidence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.begun, e.done, e.retries, e.memos = b.begun, b.done, b.retries, b.memos
}
