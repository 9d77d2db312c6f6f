package hostile_test

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// forger makes messages that say what is not so.
type forger struct {
	*attacker
	deaf string // an address where somebody accepts connections and says nothing
	n    int
}

// number is one of those that matter: zero, stale, present, future, maximal.
func (f *forger) number() uint64 {
	t := f.node.Token
	return []uint64{0, 1, t - 1, t, t + 1, t + 1000, 1 << 32, 1 << 63, math.MaxUint64, f.rng.Uint64()}[f.rng.IntN(10)]
}

// huge is a text that is much too long for what it stands for.
func (f *forger) huge() string { f.n++; return fmt.Sprint(f.n, strings.Repeat("h", 100<<10)) }

// name is an incarnation or an id: thousands of distinct ones, and those of the node.
func (f *forger) name() string {
	f.n++
	switch f.rng.IntN(50) {
	case 0:
		return f.huge()
	case 1, 2, 3:
		return f.node.Incarnation
	case 4:
		return ""
	case 5, 6:
		return "somebody"
	}
	return fmt.Sprint("forged-", f.n)
}

// address is nowhere, itself, somewhere that does not listen, or none at all.
func (f *forger) address() string {
	switch f.rng.IntN(200) {
	case 0:
		return fmt.Sprintf("127.0.0.1:%d", 1+f.rng.IntN(100)) // refuses
	case 1:
		return f.deaf
	case 2:
		return strings.Replace(f.node.Address, "127.0.0.1", "localhost", 1)
	case 3:
		return f.huge()
	case 4:
		return fmt.Sprintf("no such host %d", f.rng.IntN(100))
	case 5, 6, 7, 8, 9:
		return ""
	}
	return f.node.Address
}

func (f *forger) who() *wire.Node {
	if f.rng.IntN(20) == 0 {
		return nil
	}
	return &wire.Node{Address: f.address(), Incarnation: f.name()}
}

// shard is the name of a lease: of a shard of one of the types, or of none.
func (f *forger) shard() string {
	typ := []string{hostedType, freeType}[f.rng.IntN(2)]
	switch f.rng.IntN(20) {
	case 0:
		return ""
	case 1:
		return f.huge()
	case 2:
		return "shard/g/" + typ + "/99999999999999999999"
	}
	return fmt.Sprintf("shard/g/%s/%d", typ, f.rng.IntN(shards))
}

func (f *forger) typ() string {
	return []string{"g/" + hostedType, "g/" + freeType, "g/other", ""}[f.rng.IntN(4)]
}

func (f *forger) envelope(name string) *wire.Envelope {
	e := &wire.Envelope{Name: name, Token: f.number(), Hops: uint32(f.number()), Type: "google.protobuf.StringValue", Key: f.name(),
		Payload: []byte("\x0a\x01x"), Sequence: f.number(), Request: f.rng.IntN(2) == 0}
	switch f.rng.IntN(6) {
	case 0:
		e.Type = f.name()
	case 1:
		e.Codec = "json"
	case 2:
		e.Payload = []byte{0xff}
	}
	if f.rng.IntN(4) == 0 {
		e.Sender = &wire.Address{Address: f.address(), Id: "nobody", RequestId: uint32(f.number())}
	}
	return e
}

// message is any of those that nodes say to each other about name.
func (f *forger) message(name string) proto.Message {
	who := f.who()
	switch f.rng.IntN(17) {
	case 0, 1:
		return f.envelope(name)
	case 2:
		to, _ := f.to()
		return &wire.Frame{From: who, To: to, Link: f.number(), Number: f.number(), What: &wire.Frame_Envelope{Envelope: f.envelope(name)}}
	case 3:
		return &wire.Probe{From: who, Link: f.number(), Number: f.number()}
	case 4:
		return &wire.Ack{From: who, Link: f.number(), Number: f.number(), Taken: f.number()}
	case 5:
		return &wire.Marker{Name: name, From: who, Number: f.number(), Token: f.number(), Hops: uint32(f.number())}
	case 6:
		return &wire.MarkerAck{Name: name, From: who, Number: f.number(), Token: f.number()}
	case 7:
		return &wire.Candidate{Name: name, From: who, Id: f.name(), Leads: f.rng.IntN(2) == 0, Gone: f.rng.IntN(9) == 0}
	case 8:
		return &wire.Invite{Name: name, From: who, Number: f.number()}
	case 9:
		return &wire.Offer{Name: name, From: who, Number: f.number(), Id: f.name(), Session: int64(f.number()), Ttl: int64(f.number()),
			Nonce: f.number(), Lifetime: int64(f.number())}
	case 10:
		return &wire.HandedOver{Name: name, From: who, Number: f.number(), Off: f.rng.IntN(2) == 0, States: uint32(f.number()), Nonce: f.number()}
	case 11:
		return &wire.EntityState{Name: name, From: who, Number: f.number(), Key: f.name(), State: []byte("state"), States: uint32(f.number())}
	case 12:
		o := &wire.Order{Type: f.typ(), From: who, Coordinator: f.number(), Shards: shards, To: f.node.Incarnation}
		for range f.rng.IntN(20) {
			o.Assignments = append(o.Assignments, &wire.Assignment{Shard: uint32(f.rng.IntN(2 * shards)), Token: f.number(), Next: f.who()})
		}
		return o
	case 13:
		r := &wire.Report{Type: f.typ(), From: who, Coordinator: f.number()}
		for range f.rng.IntN(20) {
			r.Failures = append(r.Failures, &wire.Failure{Shard: uint32(f.number()), Reason: f.name()})
		}
		return r
	case 14:
		return &wire.Depart{Type: f.typ(), From: who, Back: f.rng.IntN(2) == 0}
	case 15:
		return &wire.Inquiry{Type: f.typ(), From: who, Number: f.number()}
	}
	if f.rng.IntN(2) == 0 {
		return &wire.Stranded{Type: f.typ(), Coordinator: f.number()}
	}
	return &wire.Account{Type: f.typ(), Number: f.number(), Json: []byte(`{"Held":1e99,"Recent":[{}]}`)}
}

// to is an actor or what stands for one, and the name that what it gets is about.
func (f *forger) to() (id, name string) {
	typ := []string{hostedType, freeType}[f.rng.IntN(2)]
	switch f.rng.IntN(12) {
	case 0, 1, 2:
		return managerID, "singleton/boss"
	case 3:
		return frontDoor(typ), f.shard()
	case 4:
		return frontDoor(typ), "singleton/boss"
	case 5:
		return fmt.Sprintf("holdfast/at/g/%s/%d/%s", typ, f.number(), f.name()), f.shard()
	case 6:
		return "holdfast/at/" + f.name(), f.shard()
	case 7:
		return f.name(), f.shard() // nobody
	case 8:
		return "holdfast/replies", f.shard()
	}
	return frontDoor(typ), f.shard()
}

const managerID = "holdfast/singleton/boss"

func frontDoor(typ string) string { return "holdfast/sharding/g/" + typ }
