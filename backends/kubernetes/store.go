package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
	_ store.Historian   = (*Store)(nil)
)

// Store is a store.Store in a namespace. Make one with New. It is safe for concurrent use.
type Store struct {
	*observed.Store
	objects *objects
}

const (
	// perSecond and burst bound the requests of a Store. An acquisition is three or less: who acquires a
	// thousand names at once takes 10 s. No renewal waits behind more than a call's 16 requests for long.
	perSecond, burst = 200, 400
	// silence is after how much of it a connection is probed, and then how long the answer may take:
	// client-go's defaults of 30 s and 15 s are longer than a TTL.
	silence = 3 * time.Second
	// maxMetadata is far below the 256 KiB of annotations that Kubernetes takes, also if every byte is escaped.
	maxMetadata = 16 << 10
	// batch is how many names a call may carry.
	batch = 64
)

// New returns a Store over the Leases of a namespace, which exists. It sends nothing. config is copied:
// the Store has connections and a rate limiter of its own, in which no other traffic of the process waits
// before renewals. The config's Timeout, QPS, Burst and RateLimiter don't count. A token from a file is
// read again as client-go does; a client certificate from a file is read once.
//
// An error is store.ErrInvalid.
func New(config *rest.Config, namespace string) (*Store, error) {
	invalid := func(what string, err any) (*Store, error) {
		return nil, fmt.Errorf("kubernetes.New: %s: %w: %v", what, store.ErrInvalid, err)
	}
	if config == nil {
		return invalid("config", "nil")
	}
	if why := validation.IsDNS1123Label(namespace); len(why) > 0 {
		return invalid("namespace", fmt.Sprintf("%.64q: %s", namespace, why[0]))
	}
	client, err := dial(config)
	if err != nil {
		return invalid("config", err)
	}
	o := &objects{client: client, namespace: namespace}
	_ = o.history.answered(o.history.Mark(), 0) // what is heard before the first answer counts, too
	s, err := observed.New(o)
	if err != nil {
		return nil, err
	}
	return &Store{s, o}, nil
}

// dial makes a client. It sends nothing.
func dial(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	if err := coordination.AddToScheme(scheme); err != nil {
		return nil, err
	}
	meta.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c.APIPath, c.GroupVersion = "/apis", &coordination.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.Timeout, c.RateLimiter = 0, flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
	c.WarningHandler = rest.NoWarnings{}
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	t, err := c.TransportConfig()
	if err != nil {
		return nil, err
	}
	trip := t.Transport
	if trip == nil {
		tls, err := transport.TLSConfigFor(t)
		if err != nil {
			return nil, err
		}
		own := &http.Transport{
			TLSClientConfig: tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: silence, Proxy: http.ProxyFromEnvironment,
			HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
		}
		if c.Proxy != nil {
			own.Proxy = c.Proxy
		}
		if own.DialContext = c.Dial; c.Dial == nil {
			own.DialContext = dialer.DialContext
		}
		trip = own
	}
	if trip, err = transport.HTTPWrappersForConfig(t, trip); err != nil {
		return nil, err
	}
	return rest.RESTClientForConfigAndClient(c, &http.Client{Transport: trip})
}

// Close closes the connections that are idle. No call may follow.
func (s *Store) Close() error {
	if err := s.check(context.Background()); err != nil {
		return fmt.Errorf("kubernetes: close: %w", err)
	}
	utilnet.CloseIdleConnectionsFor(s.objects.client.Client.Transport)
	return nil
}

// check is the beginning of what the Store does beside observed.Store.
func (s *Store) check(ctx context.Context) error {
	return input.Call(ctx, s.objects != nil, "kubernetes.New", store.ErrInvalid)
}

// AcceptHistory implements store.Historian.
func (s *Store) AcceptHistory(ctx context.Context) error {
	err := s.check(ctx)
	if err == nil {
		err = s.objects.accept(ctx)
	}
	if err != nil {
		return fmt.Errorf("kubernetes: accept history: %w", err)
	}
	return nil
}

// Accepted implements store.Historian.
func (s *Store) Accepted() int {
	if s.objects == nil {
		return 0
	}
	return s.objects.history.Accepted()
}
