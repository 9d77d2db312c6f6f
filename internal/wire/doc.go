// Package wire is what travels between nodes: one Envelope for every message
// to a leased name, a Nack for what could not be handed over, and the registry
// that turns Go values into payloads and back.
//
//	sender                                        receiver
//	Registry.Encode(msg) ─▶ Envelope ─ remote ─▶ Envelope ─▶ Registry.Decode
//	      │ error                                               │ error
//	      ▼                                                     ▼
//	dead letter, nothing is sent                   Nack to the sender, dead letter
//
// The envelope carries the payload as bytes, so that a node which lacks the
// type, or gets bytes that are no such value, still has a message it can
// answer: actor remoting by itself would crash or drop the link.
//
// # What arrives
//
// What is sent as T arrives as T, and *T as *T: a type name on the wire begins
// with '*' if a pointer was sent. Protocol Buffers messages are pointers always
// and travel under their own full name.
//
// The message types of this package are registered with the protobuf runtime at
// init, so that every program that imports Holdfast knows them.
//
// # Versions
//
// Protocol is the version of what nodes say to each other, and of what their records
// mean. A node understands its own and the one before. What an older one would not
// understand says so (Envelope.needs) and is refused there, with word to its sender;
// records say the version of their writer.
package wire

// Protocol is the version that this program speaks.
const Protocol = 1

//go:generate buf generate
