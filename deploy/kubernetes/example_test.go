package kubernetes_test

import (
	"context"
	"log"
	"net"
	"os"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	_ "github.com/holdfast-go/holdfast/backends/kubernetes/register" // k8s://
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

// A program as these manifests deploy it.
func Example() {
	ctx := context.Background()
	store, closeStore, err := open.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer closeStore()
	stopWithin, err := time.ParseDuration(os.Getenv("STOP_WITHIN"))
	if err != nil {
		log.Fatal(err)
	}
	n, err := node.Start(ctx, node.Config{
		ID: os.Getenv("POD_NAME"), Store: store, Group: "bank",
		Lease:      lease.Config{TTL: 15 * time.Second}, // what k8s:// needs at least
		Membership: []membership.Option{membership.WithLabels(map[string]string{"version": os.Getenv("VERSION")})},
		Listen:     net.JoinHostPort(os.Getenv("POD_IP"), os.Getenv("REMOTING_PORT")),
		Plaintext:  true,                         // or TLS
		HTTP:       ":" + os.Getenv("HTTP_PORT"), // /livez, /readyz, /info
		StopWithin: stopWithin,
	})
	if err != nil {
		log.Fatal(err)
	}
	group, err := n.JoinedGroup(ctx) // which waits for the store
	if err != nil {
		log.Fatal(err)
	}
	newest := singleton.WithPreference(group, membership.Prefer("version", membership.Newest))
	if _, err := n.Singleton("ledger", actor.PropsFromFunc(func(actor.Context) {}), newest); err != nil {
		log.Fatal(err)
	}
	if err := n.Run(ctx); err != nil { // until SIGTERM; then it hands over, and releases
		log.Fatal(err)
	}
}
