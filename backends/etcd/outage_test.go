//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/labelled"
)

// TestOutage: one server is restarted, stopped for longer than a TTL, and away
// for many TTLs. Nobody believes beyond the deadline, nobody's goroutines pile
// up, and every name is held again soon after, by the clients that were there
// before.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	m := c.Members()[0]
	labelled.Do(t.Context(), t.Name(), func(context.Context) {
		prefix := fresh()
		names := map[string]time.Duration{"long/1": 0, "long/2": 0, "short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}
		var nodes []*node
		for i := range 3 {
			nodes = append(nodes, newNode(t, c.Client(t), prefix, fmt.Sprintf("node-%d", i), ttl))
		}
		var j journal
		stop := j.group(t, nodes, names)
		j.held(t, now(), names)

		outage := func(name string, lasts time.Duration, begin, end func() error) {
			require.NoError(t, begin())
			began := now()
			most := map[bool]int{} // goroutines, in the first half and in the second
			for now() < began+lasts {
				late := now() > began+lasts/2
				most[late] = max(most[late], labelled.Count(t.Name()))
				time.Sleep(100 * time.Millisecond) // counting is costly
			}
			ending := now() // it may answer from here on
			require.NoError(t, end())
			back := now()
			took := j.held(t, back, names)
			if ending > began+trust {
				j.silent(t, began+trust, ending)
			}
			if lasts > 0 {
				require.LessOrEqual(t, most[true], most[false]+30, "goroutines pile up")
			}
			t.Logf("%s: back after %v, all held %v later; %d lost; goroutines %d, then %d",
				name, (back - began).Round(time.Millisecond), took.Round(time.Millisecond), j.lost(began), most[false], most[true])
			j.check(t)
		}
		restart := func() error { return m.Restart(t.Context()) }
		before := labelled.Count(t.Name())
		outage("restart", 0, m.Kill, restart)
		outage("stopped", ttl*3/2, func() error { return m.Stop(t.Context()) }, m.Cont)
		outage("killed", 3*ttl, m.Kill, restart)
		eventually(t, soon, "goroutines are as many as before", func() bool { return labelled.Count(t.Name()) <= before+15 })
		stop()
		j.check(t)
	})
}
