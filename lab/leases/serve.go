//go:build unix

package leases

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// ServeEtcd runs an etcd of one member for development until ctx ends: the version that the tests
// use, built from source on first use, without fsync. Its data end with it.
func ServeEtcd(ctx context.Context, listen string) error {
	l, err := net.Listen("tcp", listen) // an error says that another has the port
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	// Beside the sockets on which the kit itself speaks to it.
	c, err := etcdtest.Run(ctx, etcdtest.Options{Args: []string{"--advertise-client-urls=http://" + address,
		"--listen-client-urls=unix://client.sock,unix://direct.sock,http://" + address}})
	if err != nil {
		return err
	}
	fmt.Printf("etcd %s serves etcd://%s; Ctrl-C ends it\n", etcdtest.Version, address)
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			_, err = c.Members()[0].Metrics(ctx) // until it has ended
		}
	}
	return c.Close()
}
