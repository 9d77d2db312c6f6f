package direct_test

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/direct"
)

type stand struct {
	actor.Process
	family, rest string
}

func TestResolve(t *testing.T) {
	system := actor.NewActorSystem()
	table := direct.Of(system)
	require.Same(t, table, direct.Of(system))
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
		{direct.ID("g/a", "7/x"), stand{family: "g/a", rest: "7/x"}, true},
		{direct.ID("g/b", "7/x/y//z"), stand{family: "g/b", rest: "7/x/y//z"}, true},
		{direct.ID("g/b", ""), stand{family: "g/b"}, true},
		{id: direct.ID("g/b", "nobody")},
		{id: direct.ID("g/c", "7/x")},
		{id: direct.Prefix + "g/a"},
		{id: direct.Prefix + "g"},
		{id: direct.Prefix},
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
	_, ok := table.Resolve(direct.ID("g/a", "x"))
	require.True(t, ok)
	serve("g/a")()
	_, ok = table.Resolve(direct.ID("g/a", "x"))
	require.False(t, ok)
}
