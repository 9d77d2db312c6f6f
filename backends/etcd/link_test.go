//go:build unix

package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// TestHolderBehindABrokenLink: a holder whose way to etcd breaks stops believing
// by its own clock before anybody else holds the name, and is back in business
// when the link is, with the same client.
func TestHolderBehindABrokenLink(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, fault := range []struct {
		name  string
		apply func(*etcdtest.Route)
	}{
		{"cut", (*etcdtest.Route).Cut},
		{"replies cut", (*etcdtest.Route).CutReplies}, // its renewals land for as long as it believes
		{"refused", (*etcdtest.Route).Refuse},
		{"slower than any attempt", func(r *etcdtest.Route) { r.Delay(ttl) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			route := must(c.NewRoute())(t)
			prefix, name := fresh(), map[string]time.Duration{"job": 0}
			a := newNode(t, route.Client(t), prefix, "a", ttl)
			b := newNode(t, c.Client(t), prefix, "b", ttl)
			var j journal
			stopA := j.group(t, []*node{a}, name)
			j.by(t, "a", 0)
			stopB := j.group(t, []*node{b}, name)

			broken := now()
			fault.apply(route)
			broken = max(broken, now()) // what was sent before may have been answered
			taken := j.by(t, "b", broken)
			for _, e := range j.all() {
				if e.node == "a" {
					require.LessOrEqual(t, e.last, broken+trust, "believed beyond its deadline")
				}
			}
			t.Logf("another held the name %v after the fault", taken.first-broken)

			route.Heal()
			healed := now()
			stopB()
			back := j.by(t, "a", healed)
			t.Logf("held it again %v after the link was healed", back.first-healed)
			stopA()
			j.check(t)
		})
	}
}
