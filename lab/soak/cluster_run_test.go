//go:build linux && !race

package soak

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

func TestANodeThatDiesIsNoticed(t *testing.T) {
	j, err := lab.MakeJournal[entry](t.TempDir()+"/journal", 1)
	require.NoError(t, err)
	defer j.Close()
	at, err := lab.NewPlace(false)
	require.NoError(t, err)
	defer at.End()
	p, err := startProcess(at, settings{Endpoint: "127.0.0.1:1", Journal: "/nowhere"})
	require.NoError(t, err)
	_, err = p.await(context.Background(), 0, patience, "up", func(r said) bool { return r.What == isUp })
	require.ErrorContains(t, err, "node-0 ended by itself: exit status 2")
	require.NoError(t, p.kill())
}

func TestBadFlagsOfTheClusters(t *testing.T) {
	for _, c := range []struct {
		run  check
		args []string
		want string
	}{
		{handovers, []string{"-n", "0"}, "-n must be at least 1"},
		{handovers, []string{"-nodes", "1"}, "-nodes 2 to 100"},
		{handovers, []string{"-rate", "1e9"}, "-rate 100 to 100000"},
		{kills, []string{"-ttl", "1s"}, "-ttl at least 2s"},
		{many, []string{"-n", "0"}, "-n must be 1 to 50000"},
	} {
		err := c.run(t.Context(), c.args, &report{out: &bytes.Buffer{}})
		require.ErrorContains(t, err, c.want)
	}
}
