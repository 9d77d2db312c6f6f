package sharding

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// This file bounds what codecs of users do while a shard's lock is held: mail that has
// waited is read or written as it goes on, in its order.

// codecWithin is for how long the lock waits for a codec. What takes longer is given up,
// and until that call has returned, so is all else of its type that comes to need the
// lock.
const codecWithin = time.Second

var errCodecHangs = errors.New("its codec has not returned")

// codecs are the calls that were not waited for any longer, by the type of the message.
type codecs struct {
	mu    sync.Mutex
	stuck map[string]int
}

func (c *codecs) hangs(typ string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stuck[typ] > 0
}

func (c *codecs) add(typ string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck == nil {
		c.stuck = map[string]int{}
	}
	if c.stuck[typ] += n; c.stuck[typ] == 0 {
		delete(c.stuck, typ)
	}
}

// bounded calls a codec for a message of typ.
func bounded[T any](c *codecs, typ string, refused error, f func() (T, error)) (v T, err error) {
	hangs := func() error {
		return fmt.Errorf("%w: %.64q: %w, for more than %v", refused, typ, errCodecHangs, codecWithin)
	}
	if c.hangs(typ) {
		return v, hangs()
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	var settled atomic.Bool // it has returned, or is not waited for any longer
	outside.Aside(f, func(v T, err error) {
		done <- result{v, err}
		if !settled.CompareAndSwap(false, true) {
			c.add(typ, -1)
		}
	})
	t := time.NewTimer(codecWithin)
	defer t.Stop()
	select {
	case x := <-done:
		return x.v, x.err
	case <-t.C:
		if settled.CompareAndSwap(false, true) {
			c.add(typ, 1)
			return v, hangs()
		}
		x := <-done
		return x.v, x.err
	}
}
