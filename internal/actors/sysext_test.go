package actors_test

import (
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
)

var id = extensions.NextExtensionID()

type kept struct{ n int }

func (*kept) ExtensionID() extensions.ExtensionID { return id }

func TestThereIsOneOfASystem(t *testing.T) {
	a, b := actor.NewActorSystem(), actor.NewActorSystem()
	made := 0
	create := func() *kept { made++; return &kept{made} }
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { actors.Extension(a, id, create) })
	}
	all.Wait()
	require.Equal(t, 1, actors.Extension(a, id, create).n)
	require.Equal(t, 2, actors.Extension(b, id, create).n)
	require.Equal(t, 2, made)
}
