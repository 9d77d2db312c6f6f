package traffic_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/traffic"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

func podService() (*traffic.Service, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	port := int32(8080)
	return traffic.New(clientset.DiscoveryV1(), traffic.Config{
		Namespace: os.Getenv("POD_NAMESPACE"), Service: "app",
		Ports:   []discovery.EndpointPort{{Port: &port}}, // of a Service with one port, which has no name
		Address: os.Getenv("POD_IP"), Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"),
	})
}

// serveWhileHeld has the Service "app" lead to an HTTP server while l is held.
func serveWhileHeld(ctx context.Context, l lease.Lease, service *traffic.Service, handler http.Handler) error {
	return lease.RunForever(ctx, l, func(ctx context.Context, t lease.Term) error {
		return service.Serve(ctx, t, func(ctx context.Context) error {
			server := &http.Server{Addr: ":8080", Handler: handler}
			ended := make(chan error, 1)
			go func() { ended <- server.ListenAndServe() }()
			select {
			case err := <-ended:
				return err
			case <-ctx.Done(): // the pod is being taken off; requests that have begun get 20 s
				drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				defer cancel()
				return errors.Join(server.Shutdown(drain), server.Close())
			}
		})
	})
}

// A Service leads to the HTTP server of the holder.
func ExampleService_Serve() {
	var keeper *lease.Keeper // from lease.NewKeeper
	service, err := podService()
	check(err)
	l, err := keeper.Lease("app")
	check(err)
	check(serveWhileHeld(context.Background(), l, service, http.NotFoundHandler()))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// gateway is a singleton to whose node the Service leads.
type gateway struct {
	service *traffic.Service
	off     func() // takes it off
}

func (g *gateway) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *actor.Started:
		held, _ := singleton.Of(c)
		ctx, cancel := context.WithCancel(held.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- g.service.Serve(ctx, held, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		g.off = func() { cancel(); <-ended }
	case *actor.Stopping, *actor.Restarting:
		g.off() // the lease is released when the actor has ended
	}
}

func TestASingletonHasTheTraffic(t *testing.T) {
	a := &api{}
	shared := memory.New()
	highest := 0
	var nodes []*node.Node
	for _, id := range []string{"10.0.0.1", "10.0.0.2"} {
		n, err := node.Start(t.Context(), node.Config{ID: id, Store: shared, Logger: zap.NewNop()})
		require.NoError(t, err)
		_, err = n.Singleton("gateway", actor.PropsFromProducer(func() actor.Actor { return &gateway{service: service(t, a, id)} }))
		require.NoError(t, err)
		nodes = append(nodes, n)
		if id == "10.0.0.1" {
			a.await(t, 1)
		}
	}
	require.NoError(t, nodes[0].Stop(t.Context()))
	a.await(t, 3)
	require.NoError(t, nodes[1].Stop(t.Context()))
	require.Equal(t, []string{"10.0.0.1", "none", "10.0.0.2", "none"}, named(t, a, &highest))
}

// await waits until so many events stand.
func (a *api) await(t *testing.T, events int) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.events) >= events
	}, time.Minute, time.Millisecond)
}
