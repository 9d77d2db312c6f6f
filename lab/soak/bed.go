//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
)

// bed is a running server, and what is closed with it.
type bed struct {
	*etcdtest.Cluster
	closers []func() error
}

// newBed starts etcd and prints what the figures were made on.
func newBed(ctx context.Context, r *report) (*bed, error) {
	c, err := etcdtest.Run(ctx, etcdtest.Options{})
	if err != nil {
		return nil, err
	}
	b := &bed{Cluster: c}
	client, err := b.direct()
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	st, err := client.Status(ctx, c.Members()[0].Direct())
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	load, _ := os.ReadFile("/proc/loadavg") // only printed
	r.printf("%s: %d processors, load %.14s, %s, etcd %s with one member, no fsync", time.Now().UTC().Format("2006-01-02 15:04"),
		runtime.NumCPU(), load, runtime.Version(), st.Version)
	return b, nil
}

func (b *bed) member() *etcdtest.Member { return b.Members()[0] }

// direct makes a client on the server's own socket.
func (b *bed) direct() (*clientv3.Client, error) {
	return b.keep(b.NewClient(func(c *clientv3.Config) { c.Endpoints = []string{b.member().Direct()} }))
}

// cuttable makes a client on a way of its own, that can be cut.
func (b *bed) cuttable() (*clientv3.Client, *etcdtest.Route, error) {
	route, err := b.NewRoute()
	if err != nil {
		return nil, nil, err
	}
	client, err := b.keep(route.NewClient())
	return client, route, err
}

func (b *bed) keep(c *clientv3.Client, err error) (*clientv3.Client, error) {
	if err == nil {
		b.closers = append(b.closers, c.Close)
	}
	return c, err
}

// abandon ends a Keeper as its process's death would: nothing is given back.
func abandon(k *lease.Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.Close(ctx) // says that it left everything standing
}

func (b *bed) close() error {
	for i := len(b.closers) - 1; i >= 0; i-- {
		_ = b.closers[i]() // the figures are taken; clients of cut ways may complain
	}
	return b.Cluster.Close()
}

// flags parses args.
func flags(name string, args []string, define func(*flag.FlagSet)) error {
	fs := flag.NewFlagSet("soak "+name, flag.ContinueOnError)
	define(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%s: unexpected %q", name, fs.Arg(0))
	}
	return nil
}

// cpu is the processor time this process has used.
func cpu() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// heap is what lives on the heap now.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
