package remoting_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/remoting"
)

// Messages to ids that a family serves come in the order in which all were sent. What
// it does not serve is a dead letter, and no peer can use the mark by which it is
// found.
func TestFamiliesOfIDs(t *testing.T) {
	a, b := start(t), start(t)
	b.do("family %s 1000", a.addr)
	require.Equal(t, "1000", a.expect("burst "))
	b.do("family %s 0", a.addr)
	require.Equal(t, actors.FamilyID("test/echo", "nobody")+" *wrapperspb.StringValue", a.expect("dead "))

	bytes := must(proto.Marshal(wrapperspb.String("x")))(t)
	p := connect(t, a.addr)
	m := mail("holdfast:direct", stringValue, bytes)
	m.Targets[0].Id = actors.FamilyID("test/echo", "1")
	p.batch(m)
	require.Equal(t, actors.FamilyID("test/echo", "1")+" *wrapperspb.StringValue", a.expect("dead "))
	require.Equal(t, remoting.Stats{Misaddressed: 1}, a.stats())
	works(b, a)
}
