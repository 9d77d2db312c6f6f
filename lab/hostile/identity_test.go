package hostile_test

import (
	"math"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// intruder is where the attacker's certificate says that it is; nobody is there.
const intruder = "127.0.0.2:1"

// A peer with a certificate of the cluster, which is another node's, moves nothing,
// stops nothing, and takes no place but its own.
func TestAPeerWithACertificateOfAnother(t *testing.T) {
	ca := authority.New(t)
	_, client, err := authority.Load(ca.Issue(t, "127.0.0.2"))
	require.NoError(t, err)
	s := besiege(t, ca.Issue(t, "127.0.0.1"), credentials.NewTLS(client))
	s.want.Stats = s.before.Stats

	s.notLetIn(t, "")
	s.notLetIn(t, s.attacker.node.Address)
	s.inTheNameOfOthers(t)
	s.inItsOwn(t)

	s.judge(t)
	var r report
	s.node.ask("report", &r)
	require.Zero(t, r.Free.Held, "no forged order was obeyed")
	require.False(t, r.Hosted.Nodes[0].Leaving)
	require.Zero(t, r.Hosted.HandedOff)
}

// connect says where a peer is, as remote does on a new stream.
func (s stream) connect(address string) {
	_ = s.Send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
		ConnectionType: &remote.ConnectRequest_ServerConnection{ServerConnection: &remote.ServerConnection{SystemId: "x", Address: address}}}}})
}

// notLetIn tries to speak as another node, and as one without an address.
func (s *siege) notLetIn(t *testing.T, address string) {
	out := s.stream()
	if address != "" {
		out.connect(address)
	}
	b := s.batch()
	b.add(frontDoor(freeType), s.order(freeType, &wire.Node{Address: s.attacker.node.Address, Incarnation: s.attacker.node.Incarnation}))
	b.send(out)
	require.Equal(t, codes.PermissionDenied, status.Code(s.ends(out)))
	s.want.Stats.Forged++
}

// order is one that the node would obey if it came from where it says.
func (s *siege) order(typ string, from *wire.Node) *wire.Order {
	o := &wire.Order{Type: "g/" + typ, From: from, Coordinator: s.attacker.node.Bosses[typ], Shards: shards, To: s.attacker.node.Incarnation}
	for i := range uint32(shards) {
		o.Assignments = append(o.Assignments, &wire.Assignment{Shard: i})
	}
	return o
}

// inTheNameOfOthers says on a stream of its own what is only for others to say.
func (s *siege) inTheNameOfOthers(t *testing.T) {
	node := &wire.Node{Address: s.attacker.node.Address, Incarnation: s.attacker.node.Incarnation}
	var a tally
	s.asker.ask("tally", &a)
	asker := actor.NewPID(a.Address, "$1")
	out := s.stream()
	out.connect(intruder)
	b := s.batch()
	for id, all := range map[string][]proto.Message{
		frontDoor(freeType): {s.order(freeType, node), &wire.Stranded{Type: "g/" + freeType, From: node, Coordinator: math.MaxUint64}},
		frontDoor(hostedType): {&wire.Depart{Type: "g/" + hostedType, From: node}, &wire.Report{Type: "g/" + hostedType, From: node},
			&wire.Invite{Name: "shard/g/" + freeType + "/0", From: node}, &wire.Account{Type: "g/" + hostedType, From: node}},
		managerID: {&wire.Candidate{Name: "singleton/boss", From: node, Id: "somebody", Leads: true}},
		"holdfast/mail": {&wire.Probe{From: node, Link: math.MaxUint64}, &wire.Ack{From: node, Link: 1, Taken: math.MaxUint64},
			&wire.Frame{From: node, Link: 1, Number: 1, To: managerID},
			&wire.Frame{From: &wire.Node{Address: intruder}, What: &wire.Frame_HandedOver{HandedOver: &wire.HandedOver{From: node}}}},
		"$1": {&actor.Watch{Watcher: asker}, &actor.Unwatch{Watcher: asker}, &actor.Terminated{Who: asker}},
	} {
		for _, m := range all {
			b.add(id, m)
			s.want.Stats.Forged++
		}
	}
	b.send(out)
	_ = s.ends(out)
	s.stopsIn(t, intruder)
}

// stopsIn is stops, by who may connect.
func (s *siege) stopsIn(t *testing.T, address string) {
	s.as = address
	s.stops(t)
	s.as = ""
}

// inItsOwn says in its own name what the records do not let it say: orders with the
// token of the true coordinator, or a later one, and that another life leaves.
func (s *siege) inItsOwn(*testing.T) {
	out := s.stream()
	out.connect(intruder)
	b := s.batch()
	for _, incarnation := range []string{s.attacker.node.Incarnation, "another"} {
		me := &wire.Node{Address: intruder, Incarnation: incarnation}
		later := s.order(freeType, me)
		later.Coordinator = math.MaxUint64
		b.add(frontDoor(freeType), s.order(freeType, me))
		b.add(frontDoor(freeType), later)
		b.add(frontDoor(hostedType), &wire.Depart{Type: "g/" + hostedType, From: me})
	}
	b.send(out)
	_ = s.ends(out)
}
