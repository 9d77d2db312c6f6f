//go:build unix

package leases

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
)

// ServeEtcd runs an etcd of one member for development until ctx ends: the version that the tests
// use, built from source on first use, without fsync. Its data end with it.
func ServeEtcd(ctx context.Context, listen string) error {
	clients, err := free(listen) // an error says that another has the port
	if err != nil {
		return err
	}
	peers, err := free("127.0.0.1:0")
	if err != nil {
		return err
	}
	program, err := etcdtest.Binary(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-etcd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(program, "--name=dev", "--data-dir="+dir, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+clients, "--advertise-client-urls=http://"+clients,
		"--listen-peer-urls=http://"+peers, "--initial-advertise-peer-urls=http://"+peers, "--initial-cluster=dev=http://"+peers)
	var log bytes.Buffer // shown if it ends by itself
	cmd.Stderr = &log
	etcd, err := child.Start(cmd)
	if err != nil {
		return err
	}
	defer etcd.Kill()
	for range 300 {
		c, err := net.DialTimeout("tcp", clients, time.Second)
		if err == nil {
			fmt.Printf("etcd %s serves etcd://%s; Ctrl-C ends it\n", etcdtest.Version, clients)
			_ = c.Close()
			break
		}
		select {
		case <-etcd.Done():
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	select {
	case <-etcd.Done():
		return fmt.Errorf("etcd ended: %v\n%s", etcd.Err(), &log)
	case <-ctx.Done():
		return etcd.Signal(syscall.SIGTERM)
	}
}

// free is an address that can be listened on.
func free(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
