package partition

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/placement"
)

// MaxCount bounds the partitions of one Name.
const MaxCount = 1 << 16

// Config is what every node starts that takes part in the partitions of one Name. All but Own and
// Prepare should be the same on all nodes.
type Config struct {
	// Name tells these partitions from others of the group.
	Name string

	// Count is how many there are, numbered from 0, at most MaxCount; or Keys names them, each once.
	//
	// Of 256 partitions the fifth has other things in it than of 512. So while nodes differ in Count,
	// that of the node which was started last counts, by their clocks: the others give up all that they
	// have, and only when the last of them has done so anything is owned. A key means the same in every
	// list: while nodes differ in Keys, those with the list that was started last take their part and what
	// has no owner, and the others keep the rest until they stop, and take nothing. What a new list lacks
	// runs until its owner stops. Keys that come in place of a Count need another Name.
	Count int
	Keys  []string

	// Own is called when this node owns a partition, and must return when ctx is done: the partition
	// moves (ErrMoved), the lease is lost (for the reason that lease.Loss has), or Stop was called. ctx
	// is done before another node can own it; o.Context is done only when the lease ends, so it does not
	// tell of a move. The lease is passed on when Own has returned, and not before; Health names those
	// that go on for more than 10 s.
	//
	// When it returns before, or panics, it is called again under the same lease, after a pause that
	// grows from 100 ms to 30 s. The fifth time in a row, without a minute between, that makes the
	// partition another node's for a minute, if there is one.
	Own func(ctx context.Context, o Owned) error

	// Prepare is called before Own where another node still owns the partition, which goes on until
	// Prepare has returned nil: to load what Own needs. Where no node owns the partition, as at the first
	// start and after a crash, Own is called without it. number is as in Owned. At most 64 are called at
	// a time. ctx is done when the partition is not to come here any more. An error or a panic counts as
	// one of Own's. Default: nothing.
	Prepare func(ctx context.Context, number int) error

	// Strategy says where partitions are to be, as for sharding. Every node asks its own. It must be
	// pure; one that fails, panics, or takes more than 2 s is logged, and the default is taken.
	// Default: placement.Balanced{}, each node's part by its capacity with the fewest moves.
	Strategy placement.Strategy

	// Settle is how long a node that came gets no partition that has an owner elsewhere, but for one
	// whose owner leaves. If it is longer than a restart takes, a rolling restart moves each
	// partition about once. Default 5 s, at most a minute.
	Settle time.Duration
}

// Owned is a partition that this node owns. Its Term is that of its lease, for CheckAlive, for the
// token, and for guards of stores.
type Owned struct {
	lease.Term
	Number int    // with Keys the index in this node's list, which other nodes may have in another order
	Key    string // of Config.Keys; otherwise Number in decimal
}

// layout says what the partitions are.
type layout struct {
	id     string
	strict bool           // numbers mean something only with the layout that they are of
	keys   []string       // as users see them
	names  []string       // as lease names have them
	number map[string]int // by these
}

const daemonsLayout = "daemons "

func (c *Config) complete(daemons bool) (layout, error) {
	l := layout{id: "count " + strconv.Itoa(c.Count), strict: true, keys: slices.Clone(c.Keys), number: map[string]int{}}
	bad := func(field, format string, args ...any) (layout, error) {
		return l, fmt.Errorf("%s: %w: "+format, append([]any{field, lease.ErrInvalid}, args...)...)
	}
	switch {
	case c.Own == nil:
		return bad("Own", "nil, must be a function")
	case c.Count != 0 && c.Keys != nil:
		return bad("Count, Keys", "one of them must be set, not both")
	case c.Keys == nil && (c.Count < 1 || c.Count > MaxCount):
		return bad("Count", "%d, must be 1 to %d", c.Count, MaxCount)
	case c.Keys != nil && (len(c.Keys) == 0 || len(c.Keys) > MaxCount):
		return bad("Keys", "%d, must be 1 to %d", len(c.Keys), MaxCount)
	case c.Settle < 0 || c.Settle > time.Minute:
		return bad("Settle", "%v, must be 0, for the default, to 1m", c.Settle)
	case c.Strategy != nil && input.Nil(c.Strategy):
		return bad("Strategy", "nil, must be a strategy")
	}
	c.Settle = cmp.Or(c.Settle, 5*time.Second)
	c.Strategy = cmp.Or[placement.Strategy](c.Strategy, placement.Balanced{})
	switch {
	case daemons:
		l.id, l.strict = daemonsLayout+strconv.Itoa(c.Count), false
	case c.Keys != nil:
		sorted := slices.Sorted(slices.Values(l.keys))
		l.id, l.strict = fmt.Sprintf("keys %d %x", len(sorted), sha256.Sum256([]byte(strings.Join(sorted, "\x00")))), false
	}
	for i := range c.Count {
		l.keys = append(l.keys, strconv.Itoa(i))
	}
	for i, key := range l.keys {
		name, err := lease.Name(kindOwn, key)
		if err != nil {
			return bad("Keys", "%.64q: %v", key, err)
		}
		name = strings.TrimPrefix(name, kindOwn+"/")
		if _, twice := l.number[name]; twice {
			return bad("Keys", "%.64q, must be there once", key)
		}
		l.names, l.number[name] = append(l.names, name), i
	}
	return l, nil
}

// beyond: the layout that counts has no such daemon.
func (l *layout) beyond(n int, newest string) bool {
	count, ok := strings.CutPrefix(newest, daemonsLayout)
	most, err := strconv.Atoi(count)
	return ok && err == nil && n >= most
}
