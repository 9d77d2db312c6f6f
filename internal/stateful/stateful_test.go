package stateful_test

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/stateful"
)

type none struct{}

func (none) Receive(actor.Context) {}

// keeper keeps what it was given, or does something else.
type keeper struct {
	none
	state []byte
	do    func() error
}

func (k *keeper) HandOverState() ([]byte, error) {
	if k.do != nil {
		return k.state, k.do()
	}
	return k.state, nil
}

func (k *keeper) RestoreState(state []byte) error {
	if k.do != nil {
		return k.do()
	}
	k.state = state
	return nil
}

func TestAStateIsTakenAndGiven(t *testing.T) {
	next := &keeper{}
	state, err := stateful.Take(&keeper{state: []byte("four")}, 4)
	require.NoError(t, err)
	require.NoError(t, stateful.Give(next, state))
	require.Equal(t, "four", string(next.state))
	_, err = stateful.Take(next, 3)
	require.ErrorContains(t, err, "4 bytes, at most 3")
	state, err = stateful.Take(none{}, 4)
	require.NoError(t, err)
	require.Nil(t, state)
	require.ErrorIs(t, stateful.Give(none{}, state), stateful.ErrNot)
}

// Whatever an actor does instead is an error that says so; its goroutine goes on.
func TestAnActorThatFailsLeavesNoState(t *testing.T) {
	why := errors.New("not today")
	for want, do := range map[string]func() error{
		why.Error():          func() error { return why },
		"it panicked: a bug": func() error { panic("a bug") },
	} {
		k := &keeper{state: []byte("four"), do: do}
		state, err := stateful.Take(k, 4)
		require.ErrorContains(t, err, "HandOverState: "+want)
		require.Nil(t, state)
		require.ErrorContains(t, stateful.Give(k, state), "RestoreState: "+want)
	}
	require.ErrorIs(t, stateful.Give(&keeper{do: func() error { return why }}, nil), why)
}
