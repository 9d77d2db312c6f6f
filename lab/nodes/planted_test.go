//go:build linux

package nodes

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/store"
)

// earlySQLite has sessions that end 1.2 s before what their holders are told.
var earlySQLite = Store{Name: "early", Start: startSQLite, Open: func(ctx context.Context, path string) Client {
	c := openSQLite(ctx, path)
	c.Leases = early{c.Leases.(*sqlite.Store)}
	return c
}}

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
