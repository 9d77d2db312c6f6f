package wire_test

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// All that Protocol Buffers refuse as text is refused before it goes to remote, and all
// that they take is not.
func TestText(t *testing.T) {
	pid := func(address, id string) *actor.PID { return actor.NewPID(address, id) }
	for what, c := range map[string]struct {
		e  actor.MessageEnvelope
		ok bool
	}{
		"nothing": {actor.MessageEnvelope{}, true},
		"text": {actor.MessageEnvelope{Header: map[string]string{"ключ": "值\x00"},
			Sender: pid("a:1", "é")}, true},
		"a header":        {actor.MessageEnvelope{Header: map[string]string{"a": "b", "k": "\xff"}}, false},
		"a header's name": {actor.MessageEnvelope{Header: map[string]string{"a": "b", "\xed\xa0\x80": "v"}}, false},
		"a sender":        {actor.MessageEnvelope{Sender: pid("a:1", "\xc3")}, false},
		"its address":     {actor.MessageEnvelope{Sender: pid("\xff", "x")}, false},
	} {
		c.e.Message = wrapperspb.String("x")
		e, err := wire.Default.Envelop(&c.e, 1000)
		if !c.ok {
			require.ErrorIs(t, err, wire.ErrUnencodable, what)
			continue
		}
		require.NoError(t, err, what)
		_, _, _, err = wire.Default.Encode(e, 1000)
		require.NoError(t, err, what)
	}
	require.Equal(t, "on node a:1: no \uFFFD text", wire.Why(errors.New("no \xff text"), "a:1"))
}

// What a message's headers and sender take is counted and checked without allocating.
func TestHeadersCostNoMemory(t *testing.T) {
	e := &actor.MessageEnvelope{Header: map[string]string{"k": "v"}, Sender: actor.NewPID("a:1", "x"), Message: "m"}
	require.Equal(t, 1+1+8+3+1, actors.HeaderSize(e))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = actors.HeaderSize(e), wire.CheckText(e) }))
}
