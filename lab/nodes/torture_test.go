//go:build linux

package nodes

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/store"
)

func sizes() options {
	return options{nodes: 4, ttl: 2 * time.Second, storm: 12 * time.Second, faults: 14}
}

func kindNamed(p *plan, name string) *faultKind {
	return p.kinds[slices.IndexFunc(p.kinds, func(k *faultKind) bool { return k.name == name })]
}

var someTroubles = []Trouble{{Name: "stop of a server", Weight: 3, Least: 0.5, Most: 3}, {Name: "kill of a server", Weight: 1, Least: 0.1, Most: 1}}

func TestASeedIsASequenceOfFaults(t *testing.T) {
	draw := func(seed uint64) (rs []round) {
		p := newPlan(sizes(), seed, true, true, someTroubles)
		for range 50 {
			rs = append(rs, p.next())
		}
		return rs
	}
	first := fmt.Sprint(draw(7))
	require.True(t, first == fmt.Sprint(draw(7)))
	require.True(t, first != fmt.Sprint(draw(8)))
}

func TestEveryKindIsDrawnAndNoTargetTwiceAtATime(t *testing.T) {
	p := newPlan(sizes(), 1, true, true, someTroubles)
	kinds := map[string]int{}
	for range 100 {
		r := p.next()
		busy := map[string]time.Duration{}
		for _, f := range r.Storm {
			kinds[f.kind.name]++
			require.Less(t, f.After, 12*time.Second)
			on := f.target()
			require.GreaterOrEqual(t, f.After, busy[on], "%v", r)
			busy[on] = f.After + f.For
			require.NotEqual(t, f.Node, f.Other)
		}
		require.NotEmpty(t, r.Calm)
		for _, f := range r.Calm {
			require.True(t, f.kind.planned && f.Calm)
		}
	}
	require.Len(t, p.kinds, len(faultKinds)-1+len(someTroubles), "but cutFile")
	for _, k := range p.kinds {
		require.NotZero(t, kinds[k.name], k.name)
	}
}

func TestLinksAreSlowedDownWithinBounds(t *testing.T) {
	p := newPlan(sizes(), 2, true, true, someTroubles)
	for range 1000 {
		d, r, s := p.draw(kindNamed(p, "one direction between two nodes delayed")), p.draw(kindNamed(p, "one direction between two nodes throttled")),
			p.draw(kindNamed(p, "two nodes cut off from each other"))
		require.Equal(t, machine.Shape{Delay: 50 * time.Millisecond, Jitter: d.Shape.Jitter}, d.Shape)
		require.LessOrEqual(t, d.Shape.Jitter, 250*time.Millisecond)
		require.Equal(t, machine.Shape{Rate: r.Shape.Rate}, r.Shape)
		require.GreaterOrEqual(t, r.Shape.Rate, 50_000)
		require.LessOrEqual(t, r.Shape.Rate, 1_000_000)
		require.Equal(t, machine.Shape{Stall: true}, s.Shape)
		require.LessOrEqual(t, s.For, 8*time.Second)
	}
}

func TestLinksThatHaveNoShapeAreSpared(t *testing.T) {
	p := newPlan(sizes(), 3, false, true, someTroubles)
	for range 100 {
		for _, f := range p.next().Storm {
			require.Equal(t, machine.Shape{Stall: f.Shape.Stall}, f.Shape, "%v", f)
		}
	}
}

// A store without servers has no troubles, and no way to it is cut.
func TestAStoreWithoutServersIsSpared(t *testing.T) {
	p := newPlan(sizes(), 4, true, false, nil)
	for range 200 {
		for _, f := range p.next().Storm {
			require.NotEqual(t, theStore, f.kind.on)
			require.True(t, f.kind.on != aWay || f.kind == cutFile)
		}
	}
}

func TestTroublesLastAsLongAsTheyMay(t *testing.T) {
	p := newPlan(sizes(), 5, true, true, someTroubles)
	picks := map[uint64]bool{}
	for range 100 {
		f := p.draw(kindNamed(p, "kill of a server"))
		require.GreaterOrEqual(t, f.For, 200*time.Millisecond)
		require.LessOrEqual(t, f.For, 2*time.Second)
		picks[f.Pick] = true
	}
	require.Len(t, picks, 100)
}

// earlySQLite has sessions that end 1.2 s before what their holders are told.
var earlySQLite = Store{Name: "early", Start: startSQLite,
	Open: func(ctx context.Context, path string) Client {
		c := openSQLite(ctx, path)
		c.Leases = early{c.Leases.(*sqlite.Store)}
		return c
	}}

// unwatched is etcd without watches, without what it says of its history, and without remembered
// accounts.
var unwatched = Store{Name: "unwatched", Start: startEtcd,
	Open: func(ctx context.Context, url string) Client {
		c := openEtcd(ctx, url)
		c.Leases, c.Entities = blind{c.Leases, c.Leases.(store.Transferrer)}, nil
		return c
	}}

type blind struct {
	store.Store
	store.Transferrer
}

const tooEarly = 1200 * time.Millisecond

type early struct{ *sqlite.Store }

func (e early) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	want.TTL -= tooEarly
	g, err := e.Store.OpenSession(ctx, want)
	g.TTL += tooEarly
	return g, err
}

func (e early) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	gs, err := e.Store.Renew(ctx, sessions)
	for i := range gs {
		gs[i].TTL += tooEarly
	}
	return gs, err
}

// What is planted in the store of a file is found out, though no network can be cut.
func TestABrokenFileIsFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	var out bytes.Buffer
	for _, seed := range []uint64{3, 2, 3, 2} { // a seed fixes the faults, and not which node hosts what
		r := &scene.Run{Seed: seed, Store: earlySQLite.Name, Dir: t.TempDir(), Out: &out}
		// Nodes are cut off from the file more often than anything else.
		often := &faultKind{name: cutFile.name, weight: 100, on: aWay, least: 1, most: 1.5, do: cutFile.do}
		var j *judgement
		require.NoError(t, scene.Try(func() {
			j = play(t.Context(), r, options{length: time.Second, nodes: 3, ttl: 2 * time.Second, rate: 200, storm: 8 * time.Second, faults: 12,
				more: []*faultKind{often}, wires: newNetwork})
		}), "%s", &out)
		if slices.ContainsFunc(j.violations, func(v violation) bool { return v.rule == ruleI1 }) {
			return
		}
	}
	t.Fatal(out.String())
}
