//go:build linux

package soak

import (
	"context"
	"fmt"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// shardView is who hosts which shard, from what the nodes note as they note it.
type shardView struct {
	*cluster
	read  [][]int // of each journal of each node: entries that were taken
	homes []home  // of each shard
	boss  home    // the coordinator
	dead  map[life]bool
	began int // entries that tell of a shard that is hosted anew
}

// life is one of a node's processes.
type life struct{ node, n int }

// home is where a shard is, or was last.
type home struct {
	life
	token  uint64
	at     time.Duration // since when
	hosted bool
}

func newShardView(c *cluster, shards int) *shardView {
	return &shardView{cluster: c, read: make([][]int, len(c.journals)), homes: make([]home, shards), dead: map[life]bool{}}
}

// refresh takes what is new in the journals.
func (v *shardView) refresh() {
	for i, js := range v.journals {
		for k, j := range js {
			if k >= len(v.read[i]) {
				v.read[i] = append(v.read[i], 0)
			}
			for {
				e, ok := j.At(v.read[i][k])
				if !ok {
					break // not begun, or being written
				}
				v.take(life{i, k}, e)
				v.read[i][k]++
			}
		}
	}
}

func (v *shardView) take(l life, e entry) {
	switch e.kind {
	case coordinating:
		if e.token > v.boss.token {
			v.boss = home{l, e.token, e.at, true}
		}
	case hosted:
		if h := &v.homes[e.name]; e.token > h.token {
			*h = home{l, e.token, e.at, !v.dead[l]}
			v.began++
		}
	case unhosted:
		if h := &v.homes[e.name]; h.life == l {
			h.hosted = false
		}
	}
}

// died notes that a node's process is gone.
func (v *shardView) died(node int) {
	l := life{node, len(v.journals[node]) - 1}
	v.dead[l] = true
	v.refresh()
	for i := range v.homes {
		if h := &v.homes[i]; h.life == l {
			h.hosted = false
		}
	}
}

// counts are how many shards each node hosts, and since when all are hosted; 0 if
// they are not.
func (v *shardView) counts() (has []int, since time.Duration) {
	has = make([]int, len(v.journals))
	all := true
	for _, h := range v.homes {
		if !h.hosted {
			all = false
			continue
		}
		has[h.node]++
		since = max(since, h.at)
	}
	if !all {
		since = 0
	}
	return has, since
}

// even reports whether all shards are hosted by these nodes, each having its part.
func even(has []int, shards int, among []int) bool {
	sum := 0
	for _, i := range among {
		if has[i] < shards/len(among) || has[i] > (shards+len(among)-1)/len(among) {
			return false
		}
		sum += has[i]
	}
	return sum == shards
}

// hosted waits until every shard is hosted, and returns since when.
func (v *shardView) hosted(ctx context.Context, within time.Duration) (since time.Duration, err error) {
	err = v.until(ctx, within, "all shards are hosted", func() bool {
		_, since = v.counts()
		return since > 0
	})
	return since, err
}

// settled waits until these nodes host all shards evenly, and have for a while, and
// returns since when.
func (v *shardView) settled(ctx context.Context, within, calm time.Duration, among ...int) (since time.Duration, err error) {
	err = v.until(ctx, within, fmt.Sprintf("the shards are even among %v", among), func() bool {
		var has []int
		has, since = v.counts()
		return since > 0 && even(has, len(v.homes), among) && lab.Now()-since >= calm
	})
	return since, err
}

// until waits for cond. errNever says that it took too long.
func (v *shardView) until(ctx context.Context, within time.Duration, what string, cond func() bool) error {
	for end := lab.Now() + within; ; {
		v.refresh()
		if cond() {
			return nil
		}
		if lab.Now() >= end {
			has, _ := v.counts()
			return fmt.Errorf("%s: %w within %v; the nodes host %v of %d", what, errNever, within, has, len(v.homes))
		}
		if err := lab.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// takePart has nodes join, and returns when the last one said that it had.
func (v *shardView) takePart(ctx context.Context, nodes ...int) (at time.Duration, err error) {
	for _, i := range nodes {
		if err := v.nodes[i].tell(order{Do: doHost}); err != nil {
			return 0, err
		}
	}
	for _, i := range nodes {
		r, err := v.nodes[i].await(ctx, 0, patience, isHosting, func(r said) bool { return r.What == isHosting })
		if err != nil {
			return 0, err
		}
		at = max(at, r.At)
	}
	return at, nil
}

// leave has a node leave, and returns when it had, and its process is gone.
func (v *shardView) leave(ctx context.Context, i int) (at time.Duration, err error) {
	p := v.nodes[i]
	if err := p.tell(order{Do: doLeave}); err != nil {
		return 0, err
	}
	r, err := p.await(ctx, 0, 2*patience, hasLeft, func(r said) bool { return r.What == hasLeft })
	if err != nil {
		return 0, err
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		return 0, fmt.Errorf("%s has left and not ended for %v", p.id, patience)
	}
	if p.Err() != nil {
		return 0, fmt.Errorf("%s: %w", p.id, p.Err())
	}
	return r.At, nil
}

// quietOf ends the load of one node, and returns what it sent.
func (v *shardView) quietOf(ctx context.Context, i int) (said, error) {
	at := lab.Now()
	if err := v.nodes[i].tell(order{Do: doQuiet}); err != nil {
		return said{}, err
	}
	return v.nodes[i].await(ctx, at, patience, isQuiet, func(r said) bool { return r.What == isQuiet })
}

// sweepOf has nodes ask an entity of every shard until it answers, and returns when
// each had all answers. errNever says that one had not.
func (v *shardView) sweepOf(ctx context.Context, within time.Duration, nodes ...int) (at []time.Duration, err error) {
	began := lab.Now()
	for _, i := range nodes {
		if err := v.nodes[i].tell(order{Do: doSweep, Within: sweepWithin}); err != nil {
			return nil, err
		}
	}
	for _, i := range nodes {
		r, err := v.nodes[i].await(ctx, began, within, "answers of all shards", func(r said) bool { return r.What == hasSwept })
		if err != nil {
			return at, err
		}
		at = append(at, r.At)
	}
	return at, nil
}
