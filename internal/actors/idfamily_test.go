package actors_test

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
)

type stand struct {
	actor.Process
	family, rest string
}

func TestResolve(t *testing.T) {
	system := actor.NewActorSystem()
	table := actors.FamiliesOf(system)
	require.Same(t, table, actors.FamiliesOf(system))
	require.False(t, table.Enabled())
	table.Enable(true)
	require.True(t, table.Enabled())

	serve := func(family string) func() {
		return table.Serve(family, func(rest string) (actor.Process, bool) { return stand{family: family, rest: rest}, rest != "nobody" })
	}
	stop := serve("g/a")
	serve("g/b")
	for _, c := range []struct {
		id   string
		want stand
		ok   bool
	}{
		{actors.FamilyID("g/a", "7/x"), stand{family: "g/a", rest: "7/x"}, true},
		{actors.FamilyID("g/b", "7/x/y//z"), stand{family: "g/b", rest: "7/x/y//z"}, true},
		{actors.FamilyID("g/b", ""), stand{family: "g/b"}, true},
		{id: actors.FamilyID("g/b", "nobody")},
		{id: actors.FamilyID("g/c", "7/x")},
		{id: actors.FamilyPrefix + "g/a"},
		{id: actors.FamilyPrefix + "g"},
		{id: actors.FamilyPrefix},
		{id: "holdfast/at"},
		{id: "g/a/7/x"},
		{id: ""},
	} {
		p, ok := table.Resolve(c.id)
		require.Equal(t, c.ok, ok, c.id)
		if ok {
			require.Equal(t, c.want, p, c.id)
		}
	}

	// Who comes later takes over; who stops then does not stop it.
	serve("g/a")
	stop()
	_, ok := table.Resolve(actors.FamilyID("g/a", "x"))
	require.True(t, ok)
	serve("g/a")()
	_, ok = table.Resolve(actors.FamilyID("g/a", "x"))
	require.False(t, ok)
}
