package hostile_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
)

var seed = flag.Uint64("hostile.seed", 0, "what is sent; 0: something else each time")

// siege is a node, its good peer, and the attacker.
type siege struct {
	*attacker
	node, asker *proc
	as          string // the address that it says is its own; empty: it says none
	before      report
	want        report // what is to be counted
	letters     int64  // dead letters that there must be at least
}

// besiege starts them. own is the directory of the node's certificate, and creds are the
// attacker's.
func besiege(t *testing.T, own string, creds credentials.TransportCredentials) *siege {
	t.Helper()
	var intro introduction
	env := "HOLDFAST_TLS=" + own
	node := launch(t, "HOLDFAST_HOSTILE=node", env)
	node.read(&intro)
	asker := launch(t, "HOLDFAST_HOSTILE=asker", env, "HOLDFAST_NODE_ADDRESS="+intro.Address, "HOLDFAST_NODE_TARGETS="+intro.Targets)
	draws := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	t.Logf("-hostile.seed=%d", draws)
	s := &siege{attacker: newAttacker(t, intro, draws, creds), node: node, asker: asker}
	for a := (tally{}); a.Answered < 9*10; time.Sleep(5 * time.Millisecond) {
		asker.ask("tally", &a)
	}
	_ = s.ends(s.stream())
	node.ask("report", &s.before)
	require.Equal(t, s.attacker.node.Pid, s.before.Pid)
	return s
}

// A node that a hostile peer sends whatever the transport carries stays up and within
// its bounds, counts what it refused, and answers another peer all the while.
func TestAHostilePeer(t *testing.T) {
	s := besiege(t, "", insecure.NewCredentials())
	for _, attack := range []struct {
		what string
		do   func(*testing.T)
	}{
		{"bytes that are no message of their type", s.garbage},
		{"types and addresses that are not here", s.strangers},
		{"indexes that point nowhere", s.indexes},
		{"messages to nobody", s.nobody},
		{"protoactor's own actors", s.internals},
		{"what stops actors, and actors that are the node's own", s.stops},
		{"keys and names that can't be", s.badKeys},
		{"huge messages", s.huge},
		{"more than may wait", s.flood},
		{"forged messages", s.forged},
		{"addresses that are nowhere", s.addresses},
		{"connections that break half-way", s.halfOpen},
	} {
		began := time.Now()
		attack.do(t)
		t.Logf("%s: %v", attack.what, time.Since(began).Round(time.Millisecond))
	}
	s.judge(t)
}

// refused counts messages that go to the dead letters.
func (s *siege) refused(counter *uint64, n int) {
	*counter += uint64(n)
	s.letters += int64(n)
}

// targets are what there is to send to.
func (s *siege) targets() []string {
	all := []string{managerID, "holdfast/replies", "nobody", fmt.Sprintf("holdfast/at/g/%s/%d/k", hostedType, s.attacker.node.Token)}
	for _, typ := range []string{hostedType, freeType} {
		all = append(all, frontDoor(typ))
	}
	return all
}

// stops sends what stops actors to all that are the node's, and anything to those that
// no other node has business with.
func (s *siege) stops(*testing.T) {
	out := s.stream()
	b := s.batch()
	for _, id := range append(s.targets(), "holdfast/mail") {
		b.add(id, &actor.Stop{})
		s.refused(&s.want.Stats.Forged, 1)
		if id != "nobody" {
			b.add(id, &actor.PoisonPill{})
			s.refused(&s.want.Stats.Forged, 1)
		}
	}
	if s.as != "" {
		out.connect(s.as)
	}
	b.send(out)
	_ = s.ends(out)
}

// garbage sends bytes under every type of the protocol between nodes to every target.
// Those that are no message are lost alone.
func (s *siege) garbage(t *testing.T) {
	messages := wire.File_wire_proto.Messages()
	for _, target := range s.targets() {
		for i := range messages.Len() {
			name := string(messages.Get(i).FullName())
			for _, size := range []int{1, 7, 100} {
				data := make([]byte, size)
				for j := range data {
					data[j] = byte(s.rng.Uint32())
				}
				s.oneOf(t, target, name, data)
			}
		}
	}
}

// oneOf sends bytes of one type on a stream of their own, and expects that not to end of it.
func (s *siege) oneOf(t *testing.T, target, name string, data []byte) {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	require.NoError(t, err)
	b := s.batch()
	b.raw(target, name, data)
	require.ErrorIs(t, b.alone(), io.EOF, "%s to %s: %x", name, target, data)
	if proto.Unmarshal(data, typ.New().Interface()) != nil {
		s.refused(&s.want.Stats.Undecodable, 1)
	}
}

// strangers sends types that nobody knows, and what is for other addresses.
func (s *siege) strangers(*testing.T) {
	out := s.stream()
	for i := range 10 {
		b := s.batch()
		for j := range 100 {
			b.raw(s.targets()[j%6], fmt.Sprintf("no.such.Type%d.%d", i, j), []byte("anything"))
		}
		s.refused(&s.want.Stats.UnknownType, 100)
		for j := range 20 {
			e := b.add("nobody", wrapperspb.String("x"))
			b.b.Targets[e.Target].Address = []string{"elsewhere:1", "", "holdfast:direct", strings.Repeat("a", 100<<10)}[j%4]
		}
		s.refused(&s.want.Stats.Misaddressed, 20)
		b.send(out)
	}
	b := s.batch() // in the other form in which remote reads messages
	b.raw(managerID, "google.protobuf.ListValue", []byte(strings.Repeat("[", 5000)+strings.Repeat("1,", 1<<20)+"1"+strings.Repeat("]", 5000))).SerializerId = 1
	s.refused(&s.want.Stats.UnknownType, 1)
	b.send(out)
	_ = s.ends(out)
}

// indexes sends batches whose indexes point nowhere, and calls what is not
// implemented; each ends its stream or call.
func (s *siege) indexes(t *testing.T) {
	for _, change := range []func(*remote.MessageEnvelope){
		func(e *remote.MessageEnvelope) { e.TypeId = 9 }, func(e *remote.MessageEnvelope) { e.TypeId = -1 },
		func(e *remote.MessageEnvelope) { e.Target = 1 << 30 }, func(e *remote.MessageEnvelope) { e.Target = -1 },
		func(e *remote.MessageEnvelope) { e.Sender = 5 }, func(e *remote.MessageEnvelope) { e.Sender = -7 },
		func(e *remote.MessageEnvelope) { e.SerializerId = 77 }, func(e *remote.MessageEnvelope) { e.SerializerId = -1 },
	} {
		for _, target := range s.targets() {
			b := s.batch()
			change(b.add(target, &wire.Envelope{Key: "k"}))
			require.NotErrorIs(t, b.alone(), io.EOF)
			s.want.Stats.Malformed++
		}
	}
	c := remote.NewRemotingClient(s.conn)
	_, err := c.ListProcesses(s.ctx, &remote.ListProcessesRequest{})
	require.ErrorContains(t, err, "malformed")
	_, err = c.GetProcessDiagnostics(s.ctx, &remote.GetProcessDiagnosticsRequest{})
	require.ErrorContains(t, err, "malformed")
	s.want.Stats.Malformed += 2
}

// nobody sends protoactor's own messages to actors that do not exist, in the name of
// others.
func (s *siege) nobody(t *testing.T) {
	watcher := func() *actor.PID {
		return actor.NewPID(s.attacker.node.Address, fmt.Sprint("watcher", s.rng.IntN(100)))
	}
	out := s.stream()
	for range 20 {
		b := s.batch()
		for i := range 50 {
			id := fmt.Sprint([]string{"nobody", "holdfast/at/g/account/1/", "$"}[i%3], s.rng.IntN(1000), "x")
			b.add(id, &actor.Stop{})
			s.want.Stats.Forged++
			b.add(id, &actor.Watch{Watcher: watcher()})
			b.add(id, &actor.Unwatch{Watcher: watcher()})
			b.add(id, &actor.Terminated{Who: actor.NewPID("", id)})
			s.letters += 2 // a Stop, and the Unwatch; what answers a Watch goes to nobody, too
		}
		b.send(out)
	}
	_ = s.ends(out)
	for _, m := range []proto.Message{&actor.Watch{}, &actor.Terminated{}} { // who is not said
		b := s.batch()
		b.add("nobody", m)
		require.NotErrorIs(t, b.alone(), io.EOF)
		s.want.Stats.Malformed++
	}
}

// internals sends messages to the actors that protoactor's remote itself consists of.
func (s *siege) internals(*testing.T) {
	out := s.stream()
	b := s.batch()
	for i := range 200 {
		b.add("EndpointSupervisor/$"+idOf(i), wrapperspb.String("x"))
		s.refused(&s.want.Stats.Misaddressed, 1)
		b.add("$"+idOf(i), wrapperspb.String("x"))
	}
	b.add("EndpointSupervisor", wrapperspb.String("x"))
	b.add("activator", &remote.ActorPidRequest{Name: "x", Kind: "y"})
	b.send(out)
	_ = s.ends(out)
}

// idOf is how protoactor writes the numbers of actors.
func idOf(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ~+"
	if n < len(digits) {
		return digits[n : n+1]
	}
	return idOf(n/len(digits)) + digits[n%len(digits):n%len(digits)+1]
}

// badKeys sends envelopes that can never be handed over.
func (s *siege) badKeys(*testing.T) {
	out := s.stream()
	text := func(change func(*wire.Envelope)) *wire.Envelope {
		e := &wire.Envelope{Type: "google.protobuf.StringValue", Payload: []byte("\x0a\x01x"), Key: "k"}
		change(e)
		return e
	}
	for _, e := range []*wire.Envelope{
		text(func(e *wire.Envelope) { e.Key = "" }), text(func(e *wire.Envelope) { e.Key = strings.Repeat("k", 3<<20) }),
		text(func(e *wire.Envelope) { e.Type = "no.such" }), text(func(e *wire.Envelope) { e.Codec = "no such" }),
		text(func(e *wire.Envelope) { e.Payload = []byte{0xff} }), text(func(e *wire.Envelope) { e.Name = "shard/g/account/8" }),
	} {
		b := s.batch()
		for range 10 {
			b.add(frontDoor(hostedType), e)
		}
		s.want.Hosted.Undeliverable += 10
		s.letters += 10
		b.send(out)
	}
	b := s.batch()
	for range 10 {
		b.add(managerID, &wire.Envelope{Name: "singleton/boss", Type: "no.such", Codec: "proto"})
		b.add(managerID, &wire.Envelope{Name: "singleton/other", Type: "google.protobuf.StringValue", Codec: "proto"})
	}
	s.want.Boss.Undeliverable += 20
	s.letters += 20
	b.send(out)
	_ = s.ends(out)
}

// huge sends messages at the limit of what the node takes, and beyond.
func (s *siege) huge(t *testing.T) {
	for _, size := range []int{4 << 20, 16 << 20, 60 << 20, 66 << 20} {
		b := s.batch()
		b.raw("nobody", "google.protobuf.StringValue", make([]byte, 0))
		b.raw("nobody", "no.such.Type", make([]byte, size))
		ended := b.alone()
		if size > 65<<20 {
			s.want.Stats.Malformed++
			require.ErrorContains(t, ended, "larger than max")
			continue
		}
		s.refused(&s.want.Stats.UnknownType, 1)
	}
}

// flood sends more to shards that nobody hosts than may wait for them.
func (s *siege) flood(*testing.T) {
	out := s.stream()
	for i := range shards {
		b := s.batch()
		for j := range 3 * perShard {
			b.add(frontDoor(freeType), &wire.Envelope{Name: fmt.Sprintf("shard/g/%s/%d", freeType, i), Key: fmt.Sprint(j),
				Type: "google.protobuf.StringValue", Payload: []byte("\x0a\x01x")})
		}
		b.send(out)
		s.want.Free.Dropped += 2 * perShard
		s.letters += 2 * perShard
	}
	_ = s.ends(out)
}

// forgedMessages is how many each of several peers sends.
const forgedMessages = 10_000 / slower

// forged sends all kinds of messages that nodes say to each other, in the name of
// thousands that do not exist.
func (s *siege) forged(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer deaf.Close()
	var all sync.WaitGroup
	for i := range 3 {
		f := &forger{attacker: newAttacker(t, s.attacker.node, s.rng.Uint64(), insecure.NewCredentials()), deaf: deaf.Addr().String(), n: i << 30}
		out := f.stream()
		all.Go(func() {
			for range forgedMessages / 100 {
				b := f.batch()
				for range 100 {
					id, name := f.to()
					m := f.message(name)
					switch m.(type) {
					case *wire.Frame, *wire.Probe, *wire.Ack:
						id = "holdfast/mail"
					}
					b.add(id, m)
				}
				b.send(out)
			}
			_ = f.ends(out)
			_ = f.conn.Close()
		})
	}
	all.Wait()
}

// addresses has the node answer at addresses that are nowhere, and much too long.
func (s *siege) addresses(*testing.T) {
	out := s.stream()
	for i := range 100 / slower {
		b := s.batch()
		for j := range 8 {
			long, far := fmt.Sprint("127.0.0.1:1", i, "-", j, strings.Repeat("0", 400)), strings.Repeat("0", 100<<10)
			b.add("holdfast/inquiry", &wire.Inquiry{From: &wire.Node{Address: long, Incarnation: long}, Json: []byte("{}")})
			s.refused(&s.want.Stats.Unsendable, 1)
			b.add("holdfast/inquiry", &wire.Inquiry{From: &wire.Node{Address: long + far}, Json: []byte("{}")})
		}
		b.send(out)
	}
	_ = s.ends(out)
}

// halfOpen opens connections and drops them, each a little later.
func (s *siege) halfOpen(*testing.T) {
	const connections, atOnce = 300, 10
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for j := i; j < connections; j += atOnce {
				s.halfWay(int64(j * j / 10)) // up to 9000 bytes
			}
		})
	}
	all.Wait()
}
