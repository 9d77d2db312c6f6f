//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// now is the clock that every Keeper of this process goes by.
func now() time.Duration { return lease.SystemClock().Now().Mono }

// tenure is one term as its holder saw it: alive at first, at last, and whenever it looked
// between. The times are those that the checks went by.
type tenure struct {
	name, node  string
	token       lease.Token
	first, last time.Duration
	over        bool
	reason      error // of a loss
}

// journal collects tenures of all nodes of one bed. It judges from outside: all go by one clock.
type journal struct {
	mu   sync.Mutex
	list []*tenure
}

// contend wants the lease until ctx ends: it holds it for a while (0: as long as it can),
// journals, gives it back, and wants it again.
func (j *journal) contend(ctx context.Context, node string, h *lease.Handle, hold time.Duration) {
	for ctx.Err() == nil {
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			j.follow(ctx, node, t, hold)
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return
		}
	}
}

func (j *journal) follow(ctx context.Context, node string, t lease.Term, hold time.Duration) {
	at, alive := t.Check()
	if !alive {
		return
	}
	e := &tenure{name: t.Name(), node: node, token: t.Token(), first: at, last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.first+hold) {
		time.Sleep(2 * time.Millisecond)
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.last = at
			j.mu.Unlock()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e.over = true
	if !alive || t.Context().Err() != nil { // and was not given back
		if e.reason = context.Cause(t.Context()); e.reason == nil {
			e.reason = lease.ErrExpired // the timer that says so is late
		}
	}
}

// all is a copy, by name and token.
func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	slices.SortStableFunc(list, func(a, b tenure) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.first, b.first)) })
	return list
}

// verdict is what a journal shows of "one holder" and of growing tokens.
type verdict struct {
	terms    int
	robbed   int           // terms that the store took away: the record was gone, or another's
	doubles  int           // terms that began while an earlier one of the name was believed in
	longest  time.Duration // for which two believed, at the most
	backward int           // terms whose token is not above that of an earlier one
	furthest lease.Token   // by how much, at the most
}

// judge compares each term with those of its name that began before it.
func judge(list []tenure) (v verdict) {
	v.terms = len(list)
	for i, b := range list {
		if errors.Is(b.reason, lease.ErrRecordGone) || errors.Is(b.reason, lease.ErrTakenOver) {
			v.robbed++
		}
		double, back := false, false
		for k := i - 1; k >= 0 && list[k].name == b.name; k-- {
			a := list[k]
			if a.last >= b.first && a.node != b.node {
				double = true
				v.longest = max(v.longest, min(a.last, b.last)-b.first)
			}
			if a.token >= b.token {
				back = true
				v.furthest = max(v.furthest, a.token-b.token)
			}
		}
		if double {
			v.doubles++
		}
		if back {
			v.backward++
		}
	}
	return v
}

func (v verdict) String() string {
	return fmt.Sprintf("%d terms, %d began while another believed (for %v at most), %d tokens did not grow (by %d at most)",
		v.terms, v.doubles, v.longest.Round(time.Millisecond), v.backward, v.furthest)
}

// err is nil if there was one holder at a time, and tokens grew.
func (v verdict) err() error {
	if v.doubles > 0 || v.backward > 0 {
		return errors.New(v.String())
	}
	return nil
}
