//go:build unix

package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certs are the files the members read, and what clients need.
type certs struct {
	ca, cert, key string
	client        *tls.Config
}

// authority signs certificates for one cluster; its key is never written down.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func makeCerts(dir string) (*certs, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	server, err := ca.issue("etcd", true)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	client, err := ca.issue(CertUser, false)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("server key: %w", err)
	}
	c := &certs{
		ca:   filepath.Join(dir, "ca.pem"),
		cert: filepath.Join(dir, "server.pem"),
		key:  filepath.Join(dir, "server-key.pem"),
	}
	write := func(path, kind string, der []byte) error {
		return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	err = errors.Join(
		write(c.ca, "CERTIFICATE", ca.cert.Raw),
		write(c.cert, "CERTIFICATE", server.Certificate[0]),
		write(c.key, "PRIVATE KEY", key))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	c.client = &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{client},
		MinVersion:   tls.VersionTLS12,
	}
	return c, nil
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template("etcdtest authority")
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) issue(name string, server bool) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := template(name)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	// A member is a client too: of itself, for its HTTP gateway.
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		t.DNSNames = []string{"localhost"}
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// template is valid from an hour ago, for clocks that are stepped, to tomorrow.
func template(name string) *x509.Certificate {
	now := time.Now()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		serial = big.NewInt(now.UnixNano())
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}
