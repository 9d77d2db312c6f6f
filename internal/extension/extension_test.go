package extension_test

import (
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/extension"
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
		all.Go(func() { extension.Of(a, id, create) })
	}
	all.Wait()
	require.Equal(t, 1, extension.Of(a, id, create).n)
	require.Equal(t, 2, extension.Of(b, id, create).n)
	require.Equal(t, 2, made)
}
