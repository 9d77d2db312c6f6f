//go:build unix

// Package leases is the laboratory's scenarios of leases and stores, and an etcd to develop with.
package leases

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// ServeEtcd runs an etcd of one member for development until ctx ends: the version that the tests
// use, built from source on first use, without fsync. Its data end with it.
func ServeEtcd(ctx context.Context, listen string) {
	l := scene.Must(net.Listen("tcp", listen)) // an error says that another has the port
	address := l.Addr().String()
	scene.Check(l.Close())
	// Beside the sockets on which the kit itself speaks to it.
	c, err := etcdtest.Run(ctx, etcdtest.Options{Args: []string{"--advertise-client-urls=http://" + address,
		"--listen-client-urls=unix://client.sock,unix://direct.sock,http://" + address}})
	scene.Check(err)
	fmt.Printf("etcd %s serves etcd://%s; Ctrl-C ends it\n", etcdtest.Version, address)
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			_, err = c.Members()[0].Metrics(ctx) // until it has ended
		}
	}
	scene.Check(c.Close())
}
