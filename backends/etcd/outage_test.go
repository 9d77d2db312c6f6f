//go:build unix

package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// TestOutage: one server is restarted, stopped for longer than a TTL, and away
// for many TTLs. Nobody believes beyond the deadline, nobody's goroutines pile
// up, and every name is held again soon after, by the clients that were there
// before.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	m := c.Members()[0]
	pprof.Do(t.Context(), pprof.Labels("test", t.Name()), func(context.Context) {
		prefix := fresh()
		names := map[string]time.Duration{"long/1": 0, "long/2": 0, "short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}
		var nodes []*node
		for i := range 3 {
			nodes = append(nodes, newNode(t, c.Client(t), prefix, fmt.Sprintf("node-%d", i)))
		}
		var j journal
		stop := j.group(t, nodes, names)
		j.held(t, now(), soon, names)

		outage := func(name string, lasts time.Duration, begin, end func() error) {
			require.NoError(t, begin())
			began := now()
			most := map[bool]int{} // goroutines, in the first half and in the second
			eventually(t, lasts+soon, "the outage is over", func() bool {
				late := now() > began+lasts/2
				most[late] = max(most[late], labelled(t, t.Name()))
				return now() >= began+lasts
			})
			ending := now() // it may answer from here on
			require.NoError(t, end())
			back := now()
			took := j.held(t, back, ttl+2*time.Second, names)
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
		before := labelled(t, t.Name())
		outage("restart", 0, m.Kill, restart)
		outage("stopped", 3*time.Second, func() error { return m.Stop(t.Context()) }, m.Cont)
		outage("killed", 10*time.Second, m.Kill, restart)
		eventually(t, soon, "goroutines are as many as before", func() bool { return labelled(t, t.Name()) <= before+15 })
		stop()
		j.check(t)
	})
}

var labelledGoroutines = regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: (.*)$`)

// labelled counts the goroutines with that label, which they inherit.
func labelled(t *testing.T, label string) int {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&b, 1))
	n := 0
	for _, m := range labelledGoroutines.FindAllStringSubmatch(b.String(), -1) {
		if strings.Contains(m[2], `"`+label+`"`) {
			k, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n += k
		}
	}
	require.Positive(t, n, "labels are not inherited")
	return n
}
