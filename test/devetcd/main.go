//go:build unix

// Command devetcd runs an etcd of one member for development: the version that the tests
// use, built from source on first use, without fsync. Its data end with it.
//
//	go run ./test/devetcd                       # etcd://127.0.0.1:2379, until Ctrl-C
//	go run ./test/devetcd -listen 127.0.0.1:0   # another port; 0 is any that is free
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:2379", "host:port for clients")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "devetcd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen string) error {
	clients, err := free(listen) // says at once who else has the port
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
	dir, err := os.MkdirTemp("", "devetcd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(program, "--name=dev", "--data-dir="+dir, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+clients, "--advertise-client-urls=http://"+clients,
		"--listen-peer-urls=http://"+peers, "--initial-advertise-peer-urls=http://"+peers, "--initial-cluster=dev=http://"+peers)
	var log bytes.Buffer // shown if it ends by itself
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- fmt.Errorf("etcd ended: %v\n%s", err, &log)
	}()
	if err := serves(ctx, clients, ended); err != nil {
		cmd.Process.Kill()
		return err
	}
	fmt.Printf("etcd %s serves etcd://%s; Ctrl-C ends it\n", etcdtest.Version, clients)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-ended // it was told to end
	return nil
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

// serves waits until etcd accepts connections, for 30 s at most.
func serves(ctx context.Context, address string, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("etcd does not serve %s: %w", address, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
