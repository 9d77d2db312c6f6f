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

// etcdOpener makes an Opener, over TLS if it is secure.
func etcdOpener(secure bool) Opener {
	return func(ctx context.Context, rest string) (store.Store, func() error, error) {
		t, err := parseEtcd(rest, secure)
		if err != nil {
			return nil, nil, err
		}
		return dial(ctx, t)
	}
}

func dial(ctx context.Context, t target) (store.Store, func() error, error) {
	// ctx bounds the opening, and life is the client's: that ends with close.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	t.config.Context = life
	c, err := clientv3.New(t.config)
	if !stop() {
		if err == nil {
			err = c.Close()
		}
		err = fmt.Errorf("%w: %w", ctx.Err(), cmp.Or(err, context.Cause(ctx)))
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	s, err := etcd.New(c, etcd.WithPrefix(t.prefix))
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

var errURL = fmt.Errorf("%w: want etcd://user:password@host:port,host:port/prefix?setting=value, where user and password, "+
	"prefix and settings may be left out; each host needs its port, from 1 to 65535; "+
	"elsewhere '@', ':', '/', '?' and '#' must be escaped", store.ErrInvalid)

// parseEtcd reads what stands behind "etcd:". What it refuses it does not show: there
// may be a password in it.
func parseEtcd(rest string, secure bool) (t target, err error) {
	rest, ok := strings.CutPrefix(rest, "//")
	end := strings.IndexAny(rest+"/", "/?#")
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@') + 1
	user, password, _ := strings.Cut(strings.TrimSuffix(authority[:at], "@"), ":") // url.Parse would take fewer of them
	t.config.Username, err = url.PathUnescape(user)
	var err2 error
	t.config.Password, err2 = url.PathUnescape(password)
	u, err3 := url.Parse("etcd://hosts" + tail)
	if !ok || cmp.Or(err, err2, err3) != nil || u.Fragment != "" || strings.Contains(tail, "@") || at > 0 && user == "" {
		return target{}, errURL
	}
	t.prefix = cmp.Or(strings.TrimPrefix(u.Path, "/"), etcd.DefaultPrefix)
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return t, errURL
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	for _, host := range strings.Split(authority[at:], ",") {
		h, port, err := net.SplitHostPort(host)
		n, err2 := strconv.ParseUint(port, 10, 16)
		if err != nil || err2 != nil || h == "" || n == 0 {
			return t, errURL
		}
		t.config.Endpoints = append(t.config.Endpoints, scheme+"://"+host)
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
