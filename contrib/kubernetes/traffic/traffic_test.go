package traffic_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/traffic"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// The actor library's throttle of dead letters ends by itself, after a while.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

const ttl = 10 * time.Second

// api is the EndpointSlices of one namespace, by the rules of resourceVersion.
type api struct {
	discoveryclient.EndpointSliceInterface
	mu      sync.Mutex
	slice   *discovery.EndpointSlice
	version int
	events  []string
	gets    int
	before  func(ctx context.Context, verb string) error // nil: nothing fails
}

var resource = discovery.Resource("endpointslices")

func (a *api) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return a }

// do runs f on what there is, unless before has an error.
func (a *api) do(ctx context.Context, verb string, f func() (*discovery.EndpointSlice, error)) (*discovery.EndpointSlice, error) {
	a.mu.Lock()
	before := a.before
	a.mu.Unlock()
	if before != nil {
		if err := before(ctx, verb); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := f()
	if err != nil {
		return nil, err
	}
	return s.DeepCopy(), nil
}

func (a *api) put(s *discovery.EndpointSlice) (*discovery.EndpointSlice, error) {
	a.version++
	a.slice = s.DeepCopy()
	a.slice.ResourceVersion = strconv.Itoa(a.version)
	a.events = append(a.events, said(s))
	return a.slice, nil
}

// said is whom a slice names, and under what token.
func said(s *discovery.EndpointSlice) string {
	named := "none"
	if len(s.Endpoints) > 0 {
		named = s.Endpoints[0].Addresses[0]
	}
	return named + " by " + s.Annotations[traffic.TokenAnnotation]
}

func (a *api) Get(ctx context.Context, name string, _ meta.GetOptions) (*discovery.EndpointSlice, error) {
	return a.do(ctx, "get", func() (*discovery.EndpointSlice, error) {
		a.gets++
		if a.slice == nil {
			return nil, apierrors.NewNotFound(resource, name)
		}
		return a.slice, nil
	})
}

func (a *api) Create(ctx context.Context, s *discovery.EndpointSlice, _ meta.CreateOptions) (*discovery.EndpointSlice, error) {
	return a.do(ctx, "create", func() (*discovery.EndpointSlice, error) {
		if a.slice != nil {
			return nil, apierrors.NewAlreadyExists(resource, s.Name)
		}
		return a.put(s)
	})
}

func (a *api) Update(ctx context.Context, s *discovery.EndpointSlice, _ meta.UpdateOptions) (*discovery.EndpointSlice, error) {
	return a.do(ctx, "update", func() (*discovery.EndpointSlice, error) {
		if a.slice == nil || a.slice.ResourceVersion != s.ResourceVersion {
			return nil, apierrors.NewConflict(resource, s.Name, errors.New("of another version"))
		}
		return a.put(s)
	})
}

func (a *api) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *api) note(event string) { a.locked(func() { a.events = append(a.events, event) }) }

// since returns what was written and noted since the last call.
func (a *api) since() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	events := a.events
	a.events = nil
	return events
}

func (a *api) answers(before func(ctx context.Context, verb string) error) {
	a.locked(func() { a.before = before })
}

func number(n int32) *int32 { return &n }

func config(address string) traffic.Config {
	return traffic.Config{Namespace: "ns", Service: "app", Address: address, Ports: []discovery.EndpointPort{{Port: number(8080)}}}
}

func service(t *testing.T, a *api, address string) *traffic.Service {
	t.Helper()
	s, err := traffic.New(a, config(address))
	require.NoError(t, err)
	return s
}

// term is an Ownership with nothing behind it.
type term lease.Token

func (term) Name() string         { return "app" }
func (t term) Token() lease.Token { return lease.Token(t) }

// noted is a lease that notes its release.
type noted struct {
	*lease.Handle
	a *api
}

func (n noted) Unwrap() lease.Lease { return n.Handle }

func (n noted) Release(ctx context.Context) error {
	n.a.note("released")
	return n.Handle.Release(ctx)
}

func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func bubble(t *testing.T, f func(t *testing.T, a *api)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &api{}) })
}

// serving runs Serve, and returns what ends its ctx and where its error comes.
func serving(s *traffic.Service, own lease.Ownership, f func(context.Context) error) (end func(), ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() { ended <- s.Serve(ctx, own, f) }()
	synctest.Wait()
	return cancel, ended
}

// named is since without the tokens, which grow from write to write, at each naming.
func named(t *testing.T, a *api, highest *int) (events []string) {
	t.Helper()
	for _, event := range a.since() {
		event, token, ok := strings.Cut(event, " by ")
		if events = append(events, event); !ok {
			continue
		}
		n, err := strconv.Atoi(token)
		require.NoError(t, err)
		if event == "none" {
			require.Equal(t, *highest, n)
		} else {
			require.Greater(t, n, *highest)
		}
		*highest = n
	}
	return events
}

// The pod is off before the lease is released, at a planned end and after a loss.
func TestTakenOffBeforeTheRelease(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T, a *api) {
			f := faultstore.Wrap(memory.New())
			k, err := lease.NewKeeper(f, lease.Config{ID: "a", TTL: ttl, Logger: zap.NewNop()})
			require.NoError(t, err)
			h, err := k.Lease("app")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- lease.Run(ctx, noted{h, a}, func(ctx context.Context, held lease.Term) error {
					return service(t, a, "10.0.0.1").Serve(ctx, held, wait)
				})
			}()
			time.Sleep(time.Second)
			if lost {
				f.Partition()
				time.Sleep(2 * ttl)
				f.Heal()
			}
			cancel()
			require.Equal(t, lost, <-ended != nil)
			highest := 0
			require.Equal(t, []string{"10.0.0.1", "none", "released"}, named(t, a, &highest))
			require.NoError(t, k.Close(t.Context()))
			f.Wait()
		})
	}
}

// A former holder stood still between its read and its write, and one before its first read.
func TestALateWriteChangesNothing(t *testing.T) {
	for _, at := range []string{"create", "update", "get"} {
		bubble(t, func(t *testing.T, a *api) {
			if at == "update" {
				end, ended := serving(service(t, a, "10.0.0.9"), term(1), wait)
				end()
				require.NoError(t, <-ended)
			}
			wakes := make(chan struct{})
			a.answers(func(_ context.Context, verb string) error {
				if verb == at {
					a.answers(nil)
					<-wakes
				}
				return nil
			})
			var cause error
			_, late := serving(service(t, a, "10.0.0.1"), term(6), func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return errors.New("of f")
			})
			end, ended := serving(service(t, a, "10.0.0.2"), term(7), wait)
			close(wakes)
			err := <-late
			require.ErrorIs(t, err, lease.ErrStale)
			require.ErrorContains(t, err, "of f")
			require.ErrorContains(t, err, "token 6 after 7")
			require.NotContains(t, err.Error(), "may still be named")
			require.ErrorIs(t, cause, lease.ErrStale)
			require.Equal(t, "10.0.0.2 by 7", said(a.slice), "not even to take itself off")
			end()
			require.NoError(t, <-ended)
			require.Equal(t, "none by 7", said(a.slice))
		})
	}
}

func TestEveryWayOutTakesThePodOff(t *testing.T) {
	why := errors.New("the work's own")
	for name, f := range map[string]func(a *api, end func()) error{
		"an error": func(*api, func()) error { return why },
		"a panic":  func(*api, func()) error { panic(why) },
		"the end of ctx, and not of f": func(a *api, end func()) error {
			end()
			time.Sleep(time.Second)
			a.locked(func() { require.Equal(t, "none by 1", said(a.slice)) })
			time.Sleep(time.Hour)
			return why
		},
	} {
		bubble(t, func(t *testing.T, a *api) {
			ctx, cancel := context.WithCancel(t.Context())
			var err error
			func() {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				err = service(t, a, "10.0.0.1").Serve(ctx, term(1), func(ctx context.Context) error {
					time.Sleep(time.Second)
					return f(a, cancel)
				})
			}()
			require.ErrorIs(t, err, why)
			require.Equal(t, []string{"10.0.0.1 by 1", "none by 1"}, a.since(), name)
			cancel()
		})
	}
}

func TestAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, a *api) {
		hangs := func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		a.answers(hangs)
		began := false
		end, ended := serving(service(t, a, "10.0.0.1"), term(1), func(ctx context.Context) error {
			began = true
			return wait(ctx)
		})
		require.True(t, began, "the work does not wait for the API")
		time.Sleep(150 * time.Minute)
		a.answers(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"10.0.0.1 by 1"}, a.since())

		// One that does not come back.
		a.answers(hangs)
		asked := time.Now()
		end()
		err := <-ended
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "may still be named in EndpointSlice app-holder")
		require.Equal(t, 10*time.Second, time.Since(asked))

		// One that comes back in time.
		a.answers(func(context.Context, string) error { return apierrors.NewServiceUnavailable("down") })
		end, ended = serving(service(t, a, "10.0.0.1"), term(2), wait)
		end()
		time.Sleep(5 * time.Second)
		a.answers(nil)
		require.NoError(t, <-ended)
		require.Equal(t, []string{"none by 2"}, a.since())
	})
}

func TestWhatOthersDoIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T, a *api) {
		end, ended := serving(service(t, a, "::ffff:10.0.0.1"), term(5), wait)
		require.Equal(t, "app-holder", a.slice.Name)
		require.Equal(t, "app", a.slice.Labels["kubernetes.io/service-name"])
		require.Equal(t, discovery.AddressTypeIPv4, a.slice.AddressType)
		require.Equal(t, core.ProtocolTCP, *a.slice.Ports[0].Protocol)
		for _, change := range []func(){
			func() { a.slice = nil },
			func() { a.slice.Endpoints = nil },
			func() { a.slice.Labels = nil },
			func() { a.slice.Ports[0].Port = number(1) },
			func() { a.slice.Annotations = nil },
			func() { a.slice.Annotations[traffic.TokenAnnotation] = "4" },
		} {
			require.Equal(t, []string{"10.0.0.1 by 5"}, a.since())
			a.locked(change)
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		require.Equal(t, []string{"10.0.0.1 by 5"}, a.since())
		a.locked(func() { a.gets, a.slice.Annotations["theirs"] = 0, "kept" })
		time.Sleep(time.Hour)
		synctest.Wait()
		a.locked(func() { require.Equal(t, 120, a.gets, "one read in 30 s, and no write") })
		require.Empty(t, a.since())
		end()
		require.NoError(t, <-ended)
		require.Equal(t, "kept", a.slice.Annotations["theirs"])
	})
}

func TestRefuses(t *testing.T) {
	a := &api{}
	for field, change := range map[string]func(*traffic.Config){
		"Namespace":  func(c *traffic.Config) { c.Namespace = "" },
		"Service":    func(c *traffic.Config) { c.Service = strings.Repeat("a", 64) },
		"Address":    func(c *traffic.Config) { c.Address = "fe80::1%eth0" },
		"Ports":      func(c *traffic.Config) { c.Ports = nil },
		"1 to 100":   func(c *traffic.Config) { c.Ports = make([]discovery.EndpointPort, 101) },
		"1 to 65535": func(c *traffic.Config) { c.Ports = []discovery.EndpointPort{{Port: number(65536)}} },
		"number 0":   func(c *traffic.Config) { c.Ports = []discovery.EndpointPort{{}} },
	} {
		c := config("10.0.0.1")
		change(&c)
		_, err := traffic.New(a, c)
		require.ErrorIs(t, err, lease.ErrInvalid, field)
		require.ErrorContains(t, err, field)
	}
	_, err := traffic.New(nil, config("10.0.0.1"))
	require.ErrorIs(t, err, lease.ErrInvalid)
	s := service(t, a, "10.0.0.1")
	require.ErrorIs(t, s.Serve(t.Context(), term(0), wait), lease.ErrInvalid)
	require.ErrorIs(t, s.Serve(t.Context(), nil, wait), lease.ErrInvalid)
	require.ErrorIs(t, s.Serve(t.Context(), term(1), nil), lease.ErrInvalid)
}
