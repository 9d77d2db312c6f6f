//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// This file cuts one node off from a file, which no network does: its calls hang, as they do on a
// disk that does not answer to it, while all other nodes go on. Each node's process has a small file
// of its own, its way. While the process that tortures has that locked, the node's calls wait before
// they reach the store, and answers before they reach the node.

// wayPace is between looks at a way.
const wayPace = 5 * time.Millisecond

// way is a node's, as the node has it.
type way struct {
	file    *os.File
	store   *faultstore.Store
	end     chan struct{}
	looking sync.WaitGroup
}

// newWay has this process reach a store over a way in dir.
func newWay(dir string, store lease.Store) (*way, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	w := &way{file: f, store: faultstore.Wrap(store), end: make(chan struct{})}
	w.looking.Go(w.look)
	return w, nil
}

// look looks whether the way is open, until close.
func (w *way) look() {
	t := time.NewTicker(wayPace)
	defer t.Stop()
	for cut := false; ; {
		switch is := !w.open(); {
		case is && !cut:
			w.store.Partition()
			cut = true
		case !is && cut:
			w.store.Heal()
			cut = false
		}
		select {
		case <-t.C:
		case <-w.end:
			return
		}
	}
}

func (w *way) open() bool {
	if unix.Flock(int(w.file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return false
	}
	_ = unix.Flock(int(w.file.Fd()), unix.LOCK_UN) // it was locked just now
	return true
}

// await waits until the way is open.
func (w *way) await(ctx context.Context) error {
	for !w.open() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: cut off from the file", ctx.Err())
		case <-time.After(wayPace):
		}
	}
	return nil
}

func (w *way) close() error {
	close(w.end)
	w.looking.Wait()
	w.store.Heal()
	return w.file.Close()
}

// cut cuts off one of the nodes that have a way in dir, until it is undone.
func cut(dir string, pick uint64) (what string, undo func(context.Context) error, err error) {
	pids, err := living(dir)
	if err != nil || len(pids) == 0 {
		return "of no node", func(context.Context) error { return nil }, err
	}
	pid := pids[pick%uint64(len(pids))]
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(pid)), os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return "", nil, errors.Join(err, f.Close())
	}
	return fmt.Sprintf("process %d", pid), func(context.Context) error { return f.Close() }, nil
}

// living are the processes that have a way in dir, in order.
func living(dir string) (pids []int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		pid, bad := strconv.Atoi(e.Name())
		if bad == nil && unix.Kill(pid, 0) == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, err
}
