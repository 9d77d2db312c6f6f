//go:build unix

package etcdtest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
)

// Options say what to run. The zero value is one member, plain, with auth off.
type Options struct {
	// Members is the size of the cluster; 0: one.
	Members int
	// TLS is a directory with ca.pem and, for 127.0.0.1, cert.pem and key.pem, as
	// internal/authority issues them: members ask clients for certificates of that
	// authority, and clients made here bring this one. Members talk to each other in
	// plain.
	TLS string
	// Auth makes a user that may do everything, and turns authentication on, before
	// the cluster is handed out.
	Auth bool
	// Args are further flags for etcd, after all others.
	Args []string
}

// Option changes one thing of Options.
type Option func(*Options)

// WithMembers sets Options.Members.
func WithMembers(n int) Option { return func(o *Options) { o.Members = n } }

// WithTLS sets Options.TLS.
func WithTLS(dir string) Option { return func(o *Options) { o.TLS = dir } }

// WithAuth sets Options.Auth.
func WithAuth() Option { return func(o *Options) { o.Auth = true } }

// WithArgs adds to Options.Args.
func WithArgs(args ...string) Option {
	return func(o *Options) { o.Args = append(o.Args, args...) }
}

// clientTLS is what clients need, by the files in Options.TLS.
func clientTLS(dir string) (*tls.Config, error) {
	cert, err1 := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	ca, err2 := os.ReadFile(filepath.Join(dir, "ca.pem"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}, errors.Join(err1, err2)
}
