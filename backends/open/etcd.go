package open

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/store"
)

// openEtcd makes an Opener, over TLS if it is secure.
func openEtcd(secure bool) Opener {
	return func(ctx context.Context, rest string) (store.Store, func() error, error) {
		return dial(ctx, rest, secure)
	}
}

func dial(ctx context.Context, rest string, secure bool) (store.Store, func() error, error) {
	t, err := parseEtcd(rest, secure)
	if err != nil {
		return nil, nil, err
	}
	// ctx bounds the opening, and life is the client's: that ends with close.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	t.config.Context = life
	c, err := clientv3.New(t.config)
	if !stop() {
		if err == nil {
			err = c.Close()
		}
		return nil, nil, fmt.Errorf("%w: %w", ctx.Err(), cmp.Or(err, context.Cause(ctx)))
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	var opts []etcd.Option
	if t.prefix != "" {
		opts = append(opts, etcd.WithPrefix(t.prefix))
	}
	s, err := etcd.New(c, opts...)
	if err != nil {
		end()
		return nil, nil, errors.Join(err, c.Close())
	}
	return s, func() error { defer end(); return c.Close() }, nil
}

// target is what a URL of etcd says.
type target struct {
	config clientv3.Config
	prefix string
}

// parseEtcd reads what stands behind "etcd:". What it refuses it does not show: there
// may be a password in it.
func parseEtcd(rest string, secure bool) (t target, err error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return t, fmt.Errorf("%w: want etcd://host:port", store.ErrInvalid)
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		name, err1 := url.PathUnescape(user)
		pass, err2 := url.PathUnescape(password)
		if err1 != nil || err2 != nil || name == "" {
			return t, fmt.Errorf("user or password: %w: must be escaped as in a URL, and the user not empty", store.ErrInvalid)
		}
		t.config.Username, t.config.Password, authority = name, pass, authority[i+1:]
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	for _, host := range strings.Split(authority, ",") {
		h, port, err := net.SplitHostPort(host)
		if err != nil || h == "" || port == "" {
			return t, fmt.Errorf("host: %w: %.64q, must be host:port", store.ErrInvalid, host)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 { // it may be a piece of a password
			return t, fmt.Errorf("host: %w: a port is no number from 1 to 65535; "+
				"in a user and a password '/', '?', '#' and ':' must be escaped", store.ErrInvalid)
		}
		t.config.Endpoints = append(t.config.Endpoints, scheme+"://"+host)
	}
	if strings.Contains(tail, "@") {
		return t, fmt.Errorf("%w: an '@' behind the hosts: "+
			"there and in a user and a password '@', '/', '?' and '#' must be escaped", store.ErrInvalid)
	}
	u, err := url.Parse("etcd://host" + tail)
	if err != nil {
		return t, fmt.Errorf("%w: what stands behind the hosts is no path and query", store.ErrInvalid)
	}
	if u.Fragment != "" {
		return t, fmt.Errorf("%w: a fragment (#) has no meaning", store.ErrInvalid)
	}
	t.prefix = strings.TrimPrefix(u.Path, "/")
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return t, fmt.Errorf("settings: %w: what stands behind '?' is no query", store.ErrInvalid)
	}
	for k, v := range q {
		switch {
		case !slices.Contains([]string{"ca", "cert", "key", "server-name"}, k):
			return t, fmt.Errorf("setting %.64q: %w: is not known, of ca, cert, key and server-name", k, store.ErrInvalid)
		case !secure:
			return t, fmt.Errorf("setting %s: %w: it is for TLS, with etcds://", k, store.ErrInvalid)
		case len(v) != 1 || v[0] == "":
			return t, fmt.Errorf("setting %s: %w: must have one value", k, store.ErrInvalid)
		}
	}
	if (q.Get("cert") == "") != (q.Get("key") == "") {
		return t, fmt.Errorf("settings: %w: cert and key need each other", store.ErrInvalid)
	}
	t.config.DialTimeout, t.config.DialKeepAliveTime, t.config.DialKeepAliveTimeout = 5*time.Second, 10*time.Second, 5*time.Second
	t.config.Logger = zap.NewNop() // what goes wrong the Keeper says
	if !secure {
		return t, nil
	}
	t.config.TLS, err = transport.TLSInfo{
		TrustedCAFile: q.Get("ca"), CertFile: q.Get("cert"), KeyFile: q.Get("key"), ServerName: q.Get("server-name"),
	}.ClientConfig()
	if err != nil {
		return t, fmt.Errorf("certificates: %w: %w", store.ErrInvalid, err)
	}
	t.config.TLS.MinVersion = tls.VersionTLS12
	return t, nil
}
