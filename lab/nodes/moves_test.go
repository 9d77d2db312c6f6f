//go:build linux

package nodes

import (
	"bytes"
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// Node 1 hosts name 0, and is killed at 10 s, and again at 20 s, when it hosts nothing. Node 2 takes over at 14 s.
// Node 0 hosts name 1 all the time.
func TestHowAsksEnd(t *testing.T) {
	const calm, struck, hung = "planned moves only", "after a kill", "by their own time, or never"
	type ask struct {
		from, to float64 // in seconds; 0: never
		end      kind
		name     uint16
		asker    int
	}
	for what, c := range map[string]struct {
		ask
		want string
	}{
		"answered":                     {ask{1, 1.01, answered, 0, 0}, ""},
		"answered late":                {ask{1, 6.5, answered, 0, 0}, calm},
		"under way, told at once":      {ask{9.99, 10.1, failed, 0, 0}, ""},
		"under way, told late":         {ask{9.99, 11.5, failed, 0, 0}, struck},
		"waited for the next host":     {ask{10.5, 14.5, answered, 0, 0}, ""},
		"waited for longer":            {ask{10.5, 15.5, answered, 0, 0}, struck},
		"gave up while it waited":      {ask{10.5, 12, failed, 0, 0}, struck},
		"waited for a host that lives": {ask{10.5, 16, answered, 1, 0}, calm},
		"told of the next kill":        {ask{9.99, 20.01, failed, 0, 0}, calm},
		"by its own time":              {ask{19.99, 50, failed, 0, 0}, hung},
		"never":                        {ask{25, 0, 0, 0, 0}, hung},
		"never, as its asker died":     {ask{9.99, 0, 0, 0, 1}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			at := func(second float64) time.Duration { return time.Duration(second * float64(time.Second)) }
			es := []seen{{entry{kind: hosted, token: 1}, 1, 0}, {entry{kind: hosted, name: 1, token: 2}, 0, 0}, {entry{at: at(14), kind: hosted, token: 3}, 2, 0}}
			for seq, a := range []ask{c.ask, {2, 2.1, answered, 1, 2}, {9.99, 10.1, answered, 1, 2}, {25, 25.1, answered, 1, 2}} {
				e := entry{at: at(a.from), kind: asked, sender: senderOf(a.asker, 0, 0), name: a.name, target: a.name, seq: uint64(seq)}
				if es = append(es, seen{e, a.asker, 0}); a.to > 0 {
					e.at, e.sent, e.kind = at(a.to), e.at, a.end
					es = append(es, seen{e, a.asker, 0})
				}
			}
			slices.SortStableFunc(es, func(a, b seen) int { return cmp.Compare(a.at, b.at) })
			r := &scene.Run{Out: &bytes.Buffer{}}
			x := &moving{moves: moves{within: 30 * time.Second}, crew: &crew{Run: r}, kills: []killed{{at(10), 1, 0}, {at(20), 1, 1}}}
			x.ends(es, &judgement{})
			if c.want == "" {
				require.Empty(t, r.Violations())
				return
			}
			require.Len(t, r.Violations(), 1)
			require.Contains(t, r.Violations()[0], c.want)
		})
	}
}
