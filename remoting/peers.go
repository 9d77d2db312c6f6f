package remoting

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// PeerCheck decides whether the node that has a certificate, which is verified
// already, may be the one at an address, as Node.Address has it: nil if so. It is
// called for each connection, in both directions, and for each name of itself that a
// peer uses; from several goroutines at once. If it panics the answer is no.
type PeerCheck func(certificate *x509.Certificate, address string) error

// hostOfPeer is the PeerCheck that is the default.
func hostOfPeer(certificate *x509.Certificate, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	host, _, _ = strings.Cut(host, "%") // the zone of an IPv6 address
	return certificate.VerifyHostname(host)
}

// of answers for what a connection was authenticated with.
func (c PeerCheck) of(info credentials.AuthInfo, address string) error {
	shown, ok := info.(credentials.TLSInfo)
	if !ok || len(shown.State.PeerCertificates) == 0 {
		return fmt.Errorf("no certificate for %.300q", address)
	}
	if err := boundary.Call(func() error { return c(shown.State.PeerCertificates[0], address) }); err != nil {
		return fmt.Errorf("its certificate is not that of %.300q: %w", address, err)
	}
	return nil
}

// dialled are the credentials of connections that are made: the peer that answers at an
// address must be one that may be there, whatever name the TLS configuration verifies.
type dialled struct {
	credentials.TransportCredentials
	check PeerCheck
	name  string // that the TLS configuration verifies; empty: the address's host
}

// Info leaves the server's name out, so that ClientHandshake gets the address.
func (d dialled) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: d.TransportCredentials.Info().SecurityProtocol}
}

// Clone implements credentials.TransportCredentials.
func (d dialled) Clone() credentials.TransportCredentials {
	return dialled{d.TransportCredentials.Clone(), d.check, d.name}
}

// ClientHandshake implements credentials.TransportCredentials.
func (d dialled) ClientHandshake(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ClientHandshake(ctx, cmp.Or(d.name, address), raw)
	if err != nil {
		return nil, nil, named(err)
	}
	if err := d.check.of(info, address); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, info, nil
}

// accepted are the credentials of connections that are accepted: gRPC tells no one of a handshake that
// fails.
type accepted struct {
	credentials.TransportCredentials
	guard *guard
	own   *tls.Config
}

// Clone implements credentials.TransportCredentials.
func (a accepted) Clone() credentials.TransportCredentials {
	return accepted{a.TransportCredentials.Clone(), a.guard, a.own}
}

// ServerHandshake implements credentials.TransportCredentials.
func (a accepted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := a.TransportCredentials.ServerHandshake(raw)
	var failed *net.OpError
	refused := errors.As(err, &failed) && failed.Op == "remote error"                                            // an alert of the peer
	if n := a.guard.node.Load(); n != nil && (refused || err != nil && strings.Contains(err.Error(), "tls: ")) { // else it hung up, as probes do
		args := []any{"from", raw.RemoteAddr().String(), "error", named(err)}
		if refused && len(a.own.Certificates) > 0 && a.own.Certificates[0].Leaf != nil {
			args = append(args, "certificate", about(a.own.Certificates[0].Leaf))
		}
		n.warn("remoting: a connection was not accepted", append(args, "do", "give both nodes certificates of an authority that both have among their RootCAs and ClientCAs")...)
	}
	return conn, info, err
}

// named adds to the failure of a handshake whose certificate it is about.
func named(err error) error {
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) && len(bad.UnverifiedCertificates) > 0 {
		return fmt.Errorf("%w (the peer's: %s)", err, about(bad.UnverifiedCertificates[0]))
	}
	return err
}

// about says which certificate it is.
func about(c *x509.Certificate) string {
	return fmt.Sprintf("%.300q by %.300q, serial number %d, valid until %s", c.Subject, c.Issuer, c.SerialNumber, c.NotAfter.UTC().Format(time.RFC3339))
}

// identity is the peer on a stream. Without a check a peer is what it says.
type identity struct {
	check   PeerCheck
	info    credentials.AuthInfo
	address string // as the peer said when it connected; empty before
}

func identify(ctx context.Context, check PeerCheck) identity {
	id := identity{check: check}
	if p, ok := peer.FromContext(ctx); ok {
		id.info = p.AuthInfo
	}
	return id
}

// connects takes a peer's word for its address, if that may be its own.
func (id *identity) connects(address string) error {
	if id.check != nil {
		if err := id.check.of(id.info, address); err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	id.address = address
	return nil
}

// known is an error as long as the peer has not named itself.
func (id *identity) known() error {
	if id.check != nil && id.address == "" {
		return status.Error(codes.PermissionDenied, "messages of a peer that did not say who it is")
	}
	return nil
}

// is reports whether the peer may call itself by address.
func (id *identity) is(address string) bool {
	return id.check == nil || address == id.address || id.check.of(id.info, address) == nil
}
