package fastpath

import (
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// A message counts as much by the short way as it would in an Envelope, but for the
// names of its type and codec, which it goes without.
func TestHeadersAndSendersTakeRoom(t *testing.T) {
	for _, e := range []any{
		wrapperspb.String("x"),
		&actor.MessageEnvelope{Message: wrapperspb.String("x")},
		&actor.MessageEnvelope{Message: wrapperspb.String("x"),
			Header: map[string]string{"h": strings.Repeat("h", 1<<20), "i": "j"}},
		&actor.MessageEnvelope{Message: wrapperspb.String("x"), Sender: actor.NewPID("a:1", strings.Repeat("s", 500))},
	} {
		var short Mail
		require.True(t, short.Encode("key", e, 4<<20, nil))
		require.NotNil(t, short.plain)
		long, err := wire.Default.Envelop(e, 4<<20)
		require.NoError(t, err)
		long.Key = "key"
		require.Equal(t, long.Footprint()-len(long.Type)-len(long.Codec), short.size)
	}
}

// What travels plainly can be put in an Envelope where it arrives, whatever is in its headers;
// what can't is refused where it is sent.
func TestPlainMessagesFitAnEnvelope(t *testing.T) {
	limit := wire.DefaultLimit
	payload := wrapperspb.String(strings.Repeat("x", limit-5)) // with its tag and length
	enclose := func(_ string, e any) (*wire.Envelope, error) { return wire.Default.Envelop(e, limit) }
	plainly, refused := 0, 0
	for n := wire.Headroom/2 - 100; n <= wire.Headroom/2; n += 202 / tier.Draws(200, 200) {
		e := &actor.MessageEnvelope{Message: payload, Header: map[string]string{"h": strings.Repeat("h", n)}}
		var m Mail
		ok := m.Encode("", e, limit, enclose)
		_, err := wire.Default.Envelop(e, limit)
		require.Equal(t, ok, err == nil, "a header of %d bytes: %v", n, err)
		switch {
		case !ok:
			refused++
		case m.plain != nil:
			plainly++
		}
	}
	require.NotZero(t, plainly)
	require.NotZero(t, refused)
}
