package remoting

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Configure returns a configuration of remote for Start. It listens on host and
// port; port 0 lets the machine choose. A host that stands for all interfaces
// needs WithAdvertisedHost.
//
// The error is lease.ErrInvalid and names the setting and its bound.
//
// The configuration is for Start alone: with protoactor's own no peer is let in.
func Configure(host string, port int, opts ...Option) (*remote.Config, error) {
	s := settings{host: host, port: port, maxMessageSize: DefaultMaxMessageSize, peerCheck: hostOfPeer}
	if err := input.Apply(&s, nil, lease.ErrInvalid, opts); err != nil {
		return nil, invalid("option", "nil")
	}
	advertised, err := s.check()
	if err != nil {
		return nil, err
	}
	server, dial := s.grpcOptions()
	config := remote.Configure(bracket(host), port,
		remote.WithEndpointWriterBatchSize(s.batch()),
		remote.WithEndpointWriterQueueSize(queueSize),
		remote.WithEndpointManagerQueueSize(queueSize),
		remote.WithAdvertisedHost(advertised),
		remote.WithServerOptions(server...),
		remote.WithDialOptions(dial...),
	)
	config.MaxRetryCount = connectAttempts
	return config, nil
}

// batch is how many messages travel at once.
func (s *settings) batch() int { return min(maxBatch, max(1, batchBytes/s.maxMessageSize)) }

func (s *settings) grpcOptions() ([]grpc.ServerOption, []grpc.DialOption) {
	g := &guard{}
	if s.tls {
		g.check = s.peerCheck
	}
	server := []grpc.ServerOption{
		hardened{guard: g, maxMessageSize: s.maxMessageSize},
		grpc.MaxRecvMsgSize(s.batch()*s.maxMessageSize + batchFraming),
		grpc.MaxConcurrentStreams(16), // a peer uses one
		grpc.ConnectionTimeout(keepaliveTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(g.stream),
		grpc.ChainUnaryInterceptor(g.unary),
	}
	creds := insecure.NewCredentials()
	if s.tls {
		server = append(server, grpc.Creds(accepted{credentials.NewTLS(s.serverTLS), g, s.serverTLS}))
		creds = dialled{credentials.NewTLS(s.clientTLS), s.peerCheck, s.clientTLS.ServerName}
	}
	pauses := backoff.Config{BaseDelay: redialAfter, Multiplier: 1, MaxDelay: redialAfter}
	return server, []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithChainStreamInterceptor(g.follow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: connectTimeout}),
	}
}

// hardened does nothing to a server; it tells Start what Configure made.
type hardened struct {
	grpc.EmptyServerOption
	guard          *guard
	maxMessageSize int
}

func invalid(setting, format string, args ...any) error {
	return fmt.Errorf("remoting %s: %w: %s", setting, lease.ErrInvalid, fmt.Sprintf(format, args...))
}

// check returns the address to advertise; empty for the one listened on.
func (s *settings) check() (advertised string, err error) {
	if s.port < 0 || s.port > 65535 {
		return "", invalid("port", "%d, must be 0 to 65535", s.port)
	}
	if err := checkHost("host", s.host); err != nil {
		return "", err
	}
	if s.maxMessageSize < minMaxMessageSize || s.maxMessageSize > maxMaxMessageSize {
		return "", invalid("WithMaxMessageSize: maximum message size", "%d bytes, must be %d to %d", s.maxMessageSize, minMaxMessageSize, maxMaxMessageSize)
	}
	switch {
	case s.checked && s.peerCheck == nil:
		return "", invalid("WithPeerCheck: peer check", "nil")
	case s.checked && s.plaintext:
		return "", invalid("WithPeerCheck: peer check", "there are no certificates with WithPlaintext")
	case s.tls && s.plaintext:
		return "", invalid("TLS", "both WithTLS and WithPlaintext are given")
	case !s.tls && !s.plaintext:
		return "", invalid("TLS", "neither WithTLS nor WithPlaintext is given: without TLS a program that reaches the port may read and say anything, so that must be asked for by name")
	case s.tls:
		if err := checkTLS(s.serverTLS, s.clientTLS); err != nil {
			return "", err
		}
	}
	if s.advertised == nil {
		if unspecified(s.host) {
			return "", invalid("host", "%q stands for all interfaces; say with WithAdvertisedHost where others reach it", s.host)
		}
		return "", nil
	}
	return s.checkAdvertised()
}

func (s *settings) checkAdvertised() (string, error) {
	const setting = "WithAdvertisedHost: advertised host"
	host, port := *s.advertised, strconv.Itoa(s.port)
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	} else if bare, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(bare, "]")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", invalid(setting, "port %q of %q, must be 1 to 65535", port, *s.advertised)
	}
	if unspecified(host) {
		return "", invalid(setting, "%q names no host that others could reach", *s.advertised)
	}
	if err := checkHost(setting, host); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

func checkHost(setting, host string) error {
	if len(host) > 253 {
		return invalid(setting, "%d bytes, at most 253", len(host))
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/[]@?#\\", r) }) {
		return invalid(setting, "%q is no host name or address", host)
	}
	if strings.Contains(host, ":") && net.ParseIP(strings.Split(host, "%")[0]) == nil {
		return invalid(setting, "%q is no IPv6 address, and a port has no place in it", host)
	}
	return nil
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// bracket writes an IPv6 address as it stands before a port.
func bracket(host string) string { return strings.TrimSuffix(net.JoinHostPort(host, ""), ":") }

func checkTLS(server, client *tls.Config) error {
	const s, c = "WithTLS: server TLS", "WithTLS: client TLS"
	switch {
	case server == nil:
		return invalid(s, "nil")
	case client == nil:
		return invalid(c, "nil")
	case len(server.Certificates) == 0 && server.GetCertificate == nil:
		return invalid(s, "has no certificate")
	case server.ClientAuth != tls.RequireAndVerifyClientCert:
		return invalid(s, "ClientAuth is %v, must be %v", server.ClientAuth, tls.RequireAndVerifyClientCert)
	case server.ClientCAs == nil:
		return invalid(s, "has no ClientCAs, so any public certificate would do")
	case len(client.Certificates) == 0 && client.GetClientCertificate == nil:
		return invalid(c, "has no certificate")
	case client.InsecureSkipVerify && client.VerifyConnection == nil && client.VerifyPeerCertificate == nil:
		return invalid(c, "InsecureSkipVerify without a check of its own")
	}
	return nil
}

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
	connectWithin    = 2 * time.Second // what is sent to a peer that is starting waits for it
	redialAfter      = 50 * time.Millisecond
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
