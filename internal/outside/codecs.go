package outside

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/routines"
)

// codecWithin is for how long a codec is waited for where much else waits: a lock, a link, the
// actor of a manager. What takes longer is given up, and until that call has returned, so is
// all else of its type that comes there.
const codecWithin = time.Second

var errCodecHangs = errors.New("its codec has not returned")

// Codecs are the calls of codecs that were not waited for any longer, by the type of the
// message. The zero value has none. Safe for concurrent use.
type Codecs struct {
	mu    sync.Mutex
	stuck map[string]int
}

func (c *Codecs) hangs(typ string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stuck[typ] > 0
}

func (c *Codecs) add(typ string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck == nil {
		c.stuck = map[string]int{}
	}
	if c.stuck[typ] += n; c.stuck[typ] == 0 {
		delete(c.stuck, typ)
	}
}

// Code calls a codec for a message of typ, and waits for it for a second at the most; then
// the error is refused, and says so. It is also refused if the codec ends its goroutine.
func Code[T any](c *Codecs, typ string, refused error, f func() (T, error)) (v T, err error) {
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
	Aside(f, func(v T, err error) {
		if errors.Is(err, routines.ErrEnded) {
			err = fmt.Errorf("%w: %.64q: %w", refused, typ, err)
		}
		done <- result{v, err}
		if !settled.CompareAndSwap(false, true) {
			c.add(typ, -1)
		}
	})
	if x, ok := await(done, codecWithin); ok {
		return x.v, x.err
	}
	if settled.CompareAndSwap(false, true) {
		c.add(typ, 1)
		return v, hangs()
	}
	x := <-done
	return x.v, x.err
}

// await waits for what comes of code of users; false after that long. A process that was stopped
// for a while finds that all of that time is over at once: so it is looked at in parts.
func await[T any](c <-chan T, within time.Duration) (v T, ok bool) {
	const parts = 10
	t := time.NewTimer(within / parts)
	defer t.Stop()
	for range parts {
		select {
		case v = <-c:
			return v, true
		case <-t.C:
			t.Reset(within / parts)
		}
	}
	return v, false
}
