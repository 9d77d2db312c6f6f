package placement

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/input"
)

// MoveLimits bound how much a coordinator moves at a time.
type MoveLimits struct {
	// Moves of shards that live, at a time, in all. Default 100, or a fiftieth of all
	// shards if that is more.
	Moves int
	// PerHost bounds how many of those leave, or come to, one host. Default 25, or a
	// two-hundredth of all shards if that is more.
	PerHost int
}

// Complete returns l with the defaults for so many shards in place of zeros: of very many
// shards each has the less in it, and a join or a leave is to take about as many rounds as
// that of a few. The error says which limit is out of its bounds, 1 to 2^31-1.
func (l MoveLimits) Complete(shards int) (MoveLimits, error) {
	if l.Moves == 0 {
		l.Moves = max(100, shards/50)
	}
	if l.PerHost == 0 {
		l.PerHost = max(25, shards/200)
	}
	switch {
	case l.Moves < 1 || l.Moves > input.MaxCount:
		return l, fmt.Errorf("MoveLimits.Moves: %d, must be at least 1 and at most %d", l.Moves, input.MaxCount)
	case l.PerHost < 1 || l.PerHost > input.MaxCount:
		return l, fmt.Errorf("MoveLimits.PerHost: %d, must be at least 1 and at most %d", l.PerHost, input.MaxCount)
	}
	return l, nil
}

// Order is one thing a coordinator wants done: To is to take Shard up, which
// From (empty: nobody) is to hand off to it.
type Order struct {
	Shard    int
	From, To string // incarnations
}

// Plan returns the next orders that lead from a View to a target, in the order of
// the shards. Shards that nobody holds are taken up without a bound; moves of
// those that live are bounded by l, together with the ones under way, of which none is
// ordered again; defaults are not filled in (MoveLimits.Complete). A shard whose owner is not there is left to its lease.
func Plan(v View, target []string, inFlight map[int]Order, l MoveLimits) []Order {
	there := make(map[string]bool, len(v.Hosts))
	for _, h := range v.Hosts {
		there[h.Incarnation] = true
	}
	busy, moves := map[string]int{}, 0
	for _, o := range inFlight {
		if o.From != "" {
			moves++
			busy[o.From]++
			busy[o.To]++
		}
	}
	var orders []Order
	for s, to := range target[:min(len(target), len(v.Owners))] {
		from := v.Owners[s]
		if _, ok := inFlight[s]; ok || to == "" || to == from || !there[to] {
			continue
		}
		switch {
		case from == "":
		case !there[from]: // its lease runs out, or it comes back
			continue
		case moves >= l.Moves || busy[from] >= l.PerHost || busy[to] >= l.PerHost:
			continue
		default:
			moves++
			busy[from]++
			busy[to]++
		}
		orders = append(orders, Order{s, from, to})
	}
	return orders
}
