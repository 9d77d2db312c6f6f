package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	// TokenAnnotation has, in an EndpointSlice of this package, the fencing token of the term by
	// which it was last written.
	TokenAnnotation = "holdfast-go.github.io/token"

	managedBy = "holdfast-go.github.io"

	maxPorts = 100 // of an EndpointSlice

	requestTimeout = 5 * time.Second  // of the two requests of a write
	retry          = time.Second      // after a failure
	look           = 30 * time.Second // in which what others did to the slice is undone
	offWithin      = 10 * time.Second // is all that taking the pod off may take
)

// Config says which Service leads to the pod, and where the pod is.
type Config struct {
	// Namespace is that of Service and pod. Service is the name of a Service without a selector;
	// its EndpointSlice is called so, with -holder behind it.
	Namespace, Service string
	// Ports are the pod's, each under the name of one of the Service's ports; 1 to 100. Protocol is
	// TCP by default.
	Ports []discovery.EndpointPort
	// Address is the pod's, by the downward API: status.podIP.
	Address string
	// Pod and Node are its name and its node's (metadata.name, spec.nodeName). Either may be empty;
	// a Service whose traffic policy is Local needs the node.
	Pod, Node string
}

// Service is the way of traffic to this pod while it holds a lease. It is safe for concurrent use.
type Service struct {
	slices discoveryclient.EndpointSliceInterface
	slice  discovery.EndpointSlice // as it is when the pod is named, without a token
}

// New checks cfg. api is a clientset's DiscoveryV1. The error is lease.ErrInvalid, and names the
// field and its bound.
func New(api discoveryclient.EndpointSlicesGetter, cfg Config) (*Service, error) {
	invalid := func(field, format string, args ...any) (*Service, error) {
		return nil, fmt.Errorf("traffic.New: %s: %w: %s", field, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if input.Nil(api) {
		return invalid("the client", "nil")
	}
	for field, name := range map[string]string{"Namespace": cfg.Namespace, "Service": cfg.Service} {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return invalid(field, "%.64q: %s", name, wrong[0])
		}
	}
	address, err := netip.ParseAddr(cfg.Address)
	if err != nil || address.Zone() != "" {
		return invalid("Address", "%.64q, must be an IP address without a zone", cfg.Address)
	}
	if len(cfg.Ports) == 0 || len(cfg.Ports) > maxPorts {
		return invalid("Ports", "%d, must be 1 to %d", len(cfg.Ports), maxPorts)
	}
	// What the server fills in is filled in here, so that what it returns is found to be equal.
	ports := slices.Clone(cfg.Ports)
	for i := range ports {
		p := &ports[i]
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			return invalid("Ports", "Port of number %d must be 1 to 65535", i)
		}
		if p.Protocol == nil {
			p.Protocol = new(core.ProtocolTCP)
		}
		if p.Name == nil {
			p.Name = new("")
		}
	}
	address = address.Unmap()
	s := &Service{slices: api.EndpointSlices(cfg.Namespace)}
	s.slice.Name = cfg.Service + "-holder"
	s.slice.Labels = map[string]string{discovery.LabelServiceName: cfg.Service, discovery.LabelManagedBy: managedBy}
	s.slice.AddressType = discovery.AddressTypeIPv4
	if address.Is6() {
		s.slice.AddressType = discovery.AddressTypeIPv6
	}
	s.slice.Ports = ports
	e := discovery.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discovery.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}
	if cfg.Pod != "" {
		e.TargetRef = &core.ObjectReference{Kind: "Pod", Namespace: cfg.Namespace, Name: cfg.Pod}
	}
	if cfg.Node != "" {
		e.NodeName = &cfg.Node
	}
	s.slice.Endpoints = []discovery.Endpoint{e}
	return s, nil
}

// Serve runs f, and has the Service lead to this pod meanwhile: under own, which is a lease.Term or
// a singleton.Guarded. f begins at once, with a context that ends with ctx; give Serve a ctx that
// ends with own. The pod is taken off when ctx ends, without waiting for f, and when f returns, or
// panics. Serve returns after both, so that a lease which is released then leads nowhere.
//
// An API that is away holds nothing up. The pod is named when it is back; failures are logged to
// slog.Default, the first of several. Taking the pod off is tried for 10 s: after that it stays
// named until the next holder is, and the error says so. What others do to the EndpointSlice is
// undone within half a minute.
//
// The Service is the highest token's: a former holder that wakes late changes nothing. If the
// EndpointSlice bears a higher token than own, f's context ends, and the error is lease.ErrStale.
// Errors: f's, joined with these; lease.ErrInvalid if own has no token or f is nil.
func (s *Service) Serve(ctx context.Context, own lease.Ownership, f func(ctx context.Context) error) (err error) {
	if input.Nil(own) || f == nil || own.Token() == 0 {
		return fmt.Errorf("traffic.Serve: %w: own must have a token, and f must not be nil", lease.ErrInvalid)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var naming sync.WaitGroup
	var failed error
	naming.Go(func() {
		stale := s.name(ctx, own)
		cancel(stale)
		failed = errors.Join(stale, s.takeOff(ctx, own))
	})
	defer func() {
		cancel(nil)
		naming.Wait()
		err = errors.Join(err, failed)
	}()
	return f(ctx)
}

// name keeps the pod named until ctx is done, or a higher token is found.
func (s *Service) name(ctx context.Context, own lease.Ownership) error {
	for failed := false; ctx.Err() == nil; {
		err := s.write(ctx, own, s.slice.Endpoints)
		if errors.Is(err, lease.ErrStale) {
			return err
		}
		pause := look
		if err != nil {
			pause = retry
			if !failed && ctx.Err() == nil {
				boundary.Default().Warn("the pod can't be named as the Service's endpoint, trying on",
					zap.String("slice", s.slice.Name), zap.String("lease", own.Name()), zap.Error(err))
			}
		}
		failed = err != nil
		_ = boundary.Pause(ctx, pause)
	}
	return nil
}

// takeOff has the Service lead nowhere, unless a higher token says where.
func (s *Service) takeOff(ctx context.Context, own lease.Ownership) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), offWithin)
	defer cancel()
	for {
		err := s.write(ctx, own, nil)
		if err == nil || errors.Is(err, lease.ErrStale) {
			return nil
		}
		if boundary.Pause(ctx, retry) != nil {
			return fmt.Errorf("the pod may still be named in EndpointSlice %s: %w", s.slice.Name, err)
		}
	}
}

// write has the EndpointSlice name these endpoints under own's token, unless it has a higher one:
// then the error is lease.ErrStale. It is made if there is none, and stays when it names none, for
// its token.
func (s *Service) write(ctx context.Context, own lease.Ownership, endpoints []discovery.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	old, err := s.slices.Get(ctx, s.slice.Name, meta.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if missing {
		old, err = &discovery.EndpointSlice{}, nil
		old.Name = s.slice.Name
	}
	if err != nil {
		return err
	}
	if has, _ := strconv.ParseUint(old.Annotations[TokenAnnotation], 10, 64); has > uint64(own.Token()) {
		return fmt.Errorf("EndpointSlice %s: token %d after %d: %w", s.slice.Name, own.Token(), has, lease.ErrStale)
	}
	next := old.DeepCopy()
	for k, v := range s.slice.Labels {
		meta.SetMetaDataLabel(&next.ObjectMeta, k, v)
	}
	meta.SetMetaDataAnnotation(&next.ObjectMeta, TokenAnnotation, strconv.FormatUint(uint64(own.Token()), 10))
	next.AddressType, next.Ports, next.Endpoints = s.slice.AddressType, s.slice.Ports, endpoints
	switch {
	case missing:
		_, err = s.slices.Create(ctx, next, meta.CreateOptions{})
	case !equality.Semantic.DeepEqual(old, next):
		_, err = s.slices.Update(ctx, next, meta.UpdateOptions{}) // by the resourceVersion that was read
	}
	return err
}
