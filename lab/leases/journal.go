//go:build linux

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// tenure is one term as its holder saw it: alive at First, at Last, and whenever it looked
// between. The times are those that the checks went by, of the machine's clock.
type tenure struct {
	Name, Node  string
	Token       lease.Token
	First, Last time.Duration
	Reason      string // of a loss, without "lease "
}

// journal collects tenures of all nodes of one bed. It judges from outside: all go by one clock.
type journal struct {
	mu   sync.Mutex
	list []*tenure
	look time.Duration
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
	e := &tenure{Name: t.Name(), Node: node, Token: t.Token(), First: at, Last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.First+hold) {
		time.Sleep(max(j.look, 2*time.Millisecond))
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.Last = at
			j.mu.Unlock()
		}
	}
	if !alive || t.Context().Err() != nil { // and was not given back
		err := cmp.Or(context.Cause(t.Context()), error(lease.ErrExpired)) // the timer that says so may be late
		j.mu.Lock()
		defer j.mu.Unlock()
		e.Reason = strings.TrimPrefix(err.Error(), "lease ")
	}
}

// all is a copy, by name and time.
func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	slices.SortStableFunc(list, func(a, b tenure) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.First, b.First)) })
	return list
}

// verdict is what a journal shows of "one holder" and of growing tokens.
type verdict struct {
	terms    int
	doubles  int           // terms that began while an earlier one of the name was believed in
	longest  time.Duration // for which two believed, at the most
	backward int           // terms whose token is not above that of an earlier one
	furthest lease.Token   // by how much, at the most
}

// judge compares each term with those of its name that began before it.
func judge(list []tenure) (v verdict) {
	v.terms = len(list)
	for i, b := range list {
		double, back := false, false
		for k := i - 1; k >= 0 && list[k].Name == b.Name; k-- {
			a := list[k]
			if a.Last >= b.First && a.Node != b.Node {
				double = true
				v.longest = max(v.longest, min(a.Last, b.Last)-b.First)
			}
			if a.Token >= b.Token {
				back = true
				v.furthest = max(v.furthest, a.Token-b.Token)
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
