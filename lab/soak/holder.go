//go:build linux

package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// holderEnv makes this program a process that holds one name: "endpoint name
// TTL". It prints looks until its standard input closes.
const holderEnv = "HOLDFAST_SOAK_HOLDER"

// hole is a time between two looks, or within one, that means a stop.
const hole = 300 * time.Millisecond

// look is one CheckAlive, with the machine's monotonic clock before and after.
type look struct {
	before, after time.Duration
	alive         bool
	token         lease.Token // of the term that lived right after, if alive
}

// torn: the process was stopped during the look, so which side of the stop
// CheckAlive was on is not known.
func (l look) torn() bool { return l.after-l.before > hole }

func (l look) String() string {
	return fmt.Sprintln(int64(l.before), int64(l.after), l.alive, uint64(l.token))
}

func parseLook(line string) (l look, err error) {
	_, err = fmt.Sscan(line, &l.before, &l.after, &l.alive, &l.token)
	return l, err
}

// holder looks every millisecond, and prints the looks that differ from the last
// and those that come after a hole.
func holder(arg string) error {
	var endpoint, name string
	var ttl int64
	if _, err := fmt.Sscan(arg, &endpoint, &name, &ttl); err != nil {
		return fmt.Errorf("%s=%q: %w", holderEnv, arg, err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoint, ","), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := etcd.New(client)
	if err != nil {
		return err
	}
	k, err := lease.NewKeeper(store, lease.Config{ID: "holder", TTL: time.Duration(ttl)})
	if err != nil {
		return err
	}
	h, err := k.Lease(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = lease.Run(ctx, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
		}
	})
	wg.Go(func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() })
	out := bufio.NewWriter(os.Stdout)
	var last look
	for ctx.Err() == nil {
		l := look{before: lab.Now()}
		l.alive = h.CheckAlive()
		l.after = lab.Now()
		if t, ok := h.Term(); ok && l.alive {
			l.token = t.Token()
		}
		if l.alive != last.alive || l.token != last.token || l.before-last.after > hole || l.torn() {
			_, _ = out.WriteString(l.String())
			if err := out.Flush(); err != nil {
				break // nobody listens any more
			}
		}
		last = l
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	return k.Close(context.Background())
}
