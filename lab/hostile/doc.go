// Package hostile holds tests alone: a node in a process of its own, with a
// singleton and sharded entities, that a hostile peer sends whatever the transport
// carries, while another peer asks them.
//
// The hostile peer speaks the protocol of protoactor's remote by hand: in plaintext, and
// with a certificate that is another node's. What a peer may do in its own name is no
// part of this: see package remoting, under Security.
package hostile
