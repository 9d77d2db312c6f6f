package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

type (
	AddJob   struct{ Name string }
	Accepted struct{ Token uint64 }
)

// A program as it is deployed: every replica starts the scheduler, and one runs it.
func Example() {
	ctx := context.Background()
	store, closeStore, err := open.Open(ctx, os.Getenv("STORE")) // etcd://etcd:2379
	if err != nil {
		log.Fatal(err)
	}
	defer closeStore()
	n, err := node.Start(ctx, node.Config{
		ID: os.Getenv("POD_NAME"), Store: store,
		Listen: os.Getenv("POD_IP") + ":8080", Plaintext: true, // or TLS
		Messages: node.Types(AddJob{}, Accepted{}),
		HTTP:     ":9090", // /livez, /readyz, /info
	})
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := n.Singleton("scheduler", actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(AddJob); ok {
			held, _ := singleton.Of(c)                       // the ownership it works under:
			c.Respond(Accepted{Token: uint64(held.Token())}) // give its token to what you write to
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	go func() { // from any node, wherever the scheduler runs
		log.Println(singleton.Ask[Accepted](ctx, scheduler, AddJob{"backup"}))
	}()
	if err := n.Run(ctx); err != nil { // until a signal; then it hands over, and releases
		log.Fatal(err)
	}
}

// Every node has a certificate of the cluster's own authority, which it shows on both sides.
func ExampleTLS() {
	certificate, err := tls.LoadX509KeyPair("node.crt", "node.key")
	if err != nil {
		log.Fatal(err)
	}
	authority, err := os.ReadFile("ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	pool, certificates := x509.NewCertPool(), []tls.Certificate{certificate}
	pool.AppendCertsFromPEM(authority)
	_ = node.Config{
		Listen: os.Getenv("POD_IP") + ":8080",
		TLS: &node.TLS{
			Server: &tls.Config{Certificates: certificates, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
			Client: &tls.Config{Certificates: certificates, RootCAs: pool},
		},
	}
}
