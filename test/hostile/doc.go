// Package hostile holds tests alone: a node in a process of its own, with a
// singleton and sharded entities, that a hostile peer sends whatever the transport
// carries, while another peer asks them.
//
// The hostile peer speaks the protocol of protoactor's remote by hand. What any peer
// may do by that, such as to stop an actor that it knows of, is no part of this: see
// package remoting, under Security.
package hostile
