package remoting

import (
	"crypto/tls"
	"time"
)

// Bounds and defaults of Configure.
const (
	// DefaultMaxMessageSize is what one message may take between nodes, in bytes
	// of Protocol Buffers: 4 MiB.
	DefaultMaxMessageSize = 4 << 20
	minMaxMessageSize     = 256 << 10
	maxMaxMessageSize     = 64 << 20

	// batchBytes is what a batch may take, if it has more than one message.
	batchBytes   = 64 << 20
	maxBatch     = 256
	batchFraming = 1 << 20 // names, addresses and headers of a batch

	queueSize = 1024 // initial capacity of the queue of a peer; it grows

	keepaliveTime    = 10 * time.Second // gRPC's minimum for clients
	keepaliveTimeout = 3 * time.Second
	keepaliveMinTime = 5 * time.Second // what a server puts up with
	connectTimeout   = 3 * time.Second
	connectAttempts  = 1 // remote waits 2 s after each, and leaks all but the last connection
)

// Option changes what Configure does.
type Option func(*settings)

type settings struct {
	host           string
	port           int
	advertised     *string
	maxMessageSize int
	tls, plaintext bool
	serverTLS      *tls.Config
	clientTLS      *tls.Config
	peerCheck      PeerCheck
	checked        bool
}

// WithAdvertisedHost sets the address under which other nodes reach this one,
// if it differs from the one it listens on: a host, which gets the port of
// Configure, or "host:port".
func WithAdvertisedHost(address string) Option {
	return func(s *settings) { s.advertised = &address }
}

// WithMaxMessageSize sets how many bytes one message may take between nodes,
// from 256 KiB to 64 MiB (default DefaultMaxMessageSize); a larger one becomes a
// dead letter of its sender's system. It must be the same on all nodes. Batches
// shrink as it grows.
func WithMaxMessageSize(bytes int) Option {
	return func(s *settings) { s.maxMessageSize = bytes }
}

// WithTLS has every connection mutually authenticated. server is used for
// connections that are accepted: it must have a certificate, ClientCAs, and
// ClientAuth RequireAndVerifyClientCert. client is used for connections that are
// made: it must have a certificate and verify the server's, for which the host
// part of a node's address must be among the names of its certificate.
//
// A certificate is its node's: it proves the address that the node may call itself by,
// see WithPeerCheck.
//
// One of WithTLS and WithPlaintext must be given.
func WithTLS(server, client *tls.Config) Option {
	return func(s *settings) { s.tls, s.serverTLS, s.clientTLS = true, server, client }
}

// WithPlaintext has every connection neither encrypted nor authenticated, in place of
// WithTLS: a program that reaches the port may read everything and say anything in every
// node's name. It is for one machine, for tests, and for a network on which everybody
// is trusted.
func WithPlaintext() Option { return func(s *settings) { s.plaintext = true } }

// WithPeerCheck sets which peer may be the node at an address, in place of the default: the
// host part of the address is among the subject alternative names of the certificate,
// so that nodes on one host can't be told apart. Use it where certificates name nodes in
// another way: by their ids, by URI, or with the port. It needs WithTLS.
//
// A peer that may not be the node it says it is is not let in, and a node that is reached at an
// address and may not be there is not spoken to. What a peer then says in the name of
// another becomes a dead letter (Stats.Forged).
func WithPeerCheck(check PeerCheck) Option {
	return func(s *settings) { s.peerCheck, s.checked = check, true }
}
