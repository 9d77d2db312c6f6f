//go:build linux

package scheduler

import (
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// merge makes one journal and one list of passes of what etcd applied and what
// each node has told. What was applied is taken from etcd alone, for a node may
// be killed before it tells; what was not applied left no trace there.
func merge(applied []stage.Placed[entry], told map[string][]report) (entries []entry, passes []pass) {
	for node, reports := range told {
		for _, r := range reports {
			switch {
			case r.What == didPass:
				passes = append(passes, pass{node, r.Token, r.At})
			case r.What == didWrite && r.Outcome != stage.Written:
				refused := entry{node, r.Token, r.At, r.Kind, r.Number, r.Outcome}
				applied = append(applied, stage.Placed[entry]{Revision: r.Revision, Entry: refused})
			}
		}
	}
	return stage.InOrder(applied, func(x entry) (stage.Outcome, time.Duration) { return x.outcome, x.at }), passes
}
