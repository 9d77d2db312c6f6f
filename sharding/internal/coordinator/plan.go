package coordinator

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// CompleteLimits returns l with the defaults for so many shards in place of zeros: of very many
// shards each has the less in it, and a join or a leave is to take about as many rounds as
// that of a few. The error says which limit is out of its bounds, 1 to 2^31-1.
func CompleteLimits(l placement.MoveLimits, shards int) (placement.MoveLimits, error) {
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

// Order says that host To takes up a shard, which host From, if there is one, hands off to it.
type Order struct {
	Shard    int
	From, To string // incarnations
}

// plan returns the next orders that lead from a View to a target, in the order of the shards.
// Free shards are taken up without a bound; moves of those that have a host are bounded by l,
// together with the ones in flight, of which none is ordered again. A shard whose host is gone
// is left to its lease.
func plan(v placement.View, target []string, inFlight map[int]Order, l placement.MoveLimits) []Order {
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
