package sharding_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
)

// Who sent what the host can't read, by the ways past Envelopes, is told why.
func TestAPlainMessageThatCannotBeRead(t *testing.T) {
	for reason, what := range map[hosting.Reason]*wire.Unread{
		hosting.ReasonUndecodable: {Type: "google.protobuf.StringValue", Payload: []byte{0x0a, 1, 0xff}},
		hosting.ReasonUnknownType: {Type: "no.such.Type"},
	} {
		bubble(t, func(c *cluster) {
			ns, id, _ := shortWay(c, true)
			_, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id, wrapperspb.String("x"))
			require.NoError(t, err)
			p, ok := actors.FamiliesOf(ns[1].system).Resolve(actors.FamilyID("g/account", "1/"+id))
			require.True(t, ok)
			answer := actor.NewFuture(ns[1].system, time.Second)
			p.SendUserMessage(actor.NewPID("b:1", "x"), &actor.MessageEnvelope{Message: what, Sender: answer.PID()})
			got, err := answer.Result()
			require.NoError(t, err)
			u, ok := got.(hosting.Undeliverable)
			require.True(t, ok, "%T", got)
			require.Equal(t, reason, u.Notice().Reason)
			require.EqualValues(t, 1, ns[1].region.Info().Undeliverable)
		})
	}
}
