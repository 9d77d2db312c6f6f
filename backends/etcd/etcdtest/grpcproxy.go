//go:build unix

package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// GRPCProxy runs etcd's own grpc-proxy before the cluster's first route and returns
// where it listens, as host:port, once it does. Its process ends with the cluster.
// The cluster must be plain: without TLS, and with authentication off.
func (c *Cluster) GRPCProxy(ctx context.Context) (endpoint string, err error) {
	if c.isClosed() {
		return "", errClosed
	}
	ctx, cancel := c.life.Bounded(ctx)
	defer cancel()
	for {
		endpoint, err = c.grpcProxy(ctx)
		if err == nil || ctx.Err() != nil {
			return endpoint, err
		} // else another process had the port by then
	}
}

func (c *Cluster) grpcProxy(ctx context.Context) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("etcdtest: grpc-proxy: %w", err)
	}
	addr := ln.Addr().String()
	ln.Close()
	cmd := exec.Command(c.opts.Binary, "grpc-proxy", "start", "--listen-addr="+addr, "--advertise-client-url="+addr,
		"--endpoints="+strings.Join(c.Endpoints(), ","))
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.temp, etcdEnv(), &out, &out
	p, err := child.Start(cmd)
	if err != nil {
		return "", fmt.Errorf("etcdtest: grpc-proxy: %w", err)
	}
	c.mu.Lock()
	c.proxies = append(c.proxies, p)
	c.mu.Unlock()
	for {
		if p.Exited() {
			return "", fmt.Errorf("etcdtest: grpc-proxy on %s: %w\n%s", addr, p.Err(), bytes.TrimSpace(out.Bytes()))
		}
		if conn, err := net.DialTimeout("tcp", addr, attempt); err == nil {
			return addr, conn.Close()
		}
		if err := servertest.Pause(ctx, 20*time.Millisecond); err != nil {
			return "", fmt.Errorf("etcdtest: grpc-proxy on %s: %w", addr, err)
		}
	}
}
