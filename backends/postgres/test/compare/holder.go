//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
)

// holderEnv has a process of this program hold one name.
const holderEnv = "HOLDFAST_COMPARE_HOLD"

// holding is what such a process is told.
type holding struct {
	Way, URL, Name string
	TTL            time.Duration
}

// holderMain acquires, says so, and keeps the name until SIGTERM, which has it released.
func holderMain(text string) int {
	var h holding
	err := json.Unmarshal([]byte(text), &h)
	if err == nil {
		err = h.hold()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (h holding) hold() error {
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx := context.Background()
	c, err := newCandidate(ctx, h.Way, h.URL, h.Name, fmt.Sprint("holder-", os.Getpid()), h.TTL)
	if err != nil {
		return err
	}
	if ok, err := c.try(ctx); err != nil || !ok {
		return fmt.Errorf("%s: not acquired: %w", h.Name, err)
	}
	fmt.Println("held")
	for {
		if wait(ended, h.TTL/3) != nil {
			err := c.release(ctx)
			c.close() // which waits for what is sent behind the release, so that others hear of it
			return err
		}
		if h.Way == holdfast {
			continue
		}
		if err := c.renew(ctx); err != nil {
			return err
		}
	}
}

// start runs a process that holds the name.
func (h holding) start(ctx context.Context) (*child.Process, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	child.EndWithParent(cmd, syscall.SIGKILL)
	p, err := child.Start(cmd)
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	line, err := bufio.NewReader(r).ReadString('\n')
	if strings.TrimSpace(line) != "held" {
		return nil, errors.Join(fmt.Errorf("a holder of %s said %q: %w", h.Name, line, err), p.Kill())
	}
	return p, nil
}

// handOver has a process hold the name and another wait for it, sends a signal to the holder at
// some moment between two renewals, and returns how long after that the other had it; never if it
// had not within so long.
func (h holding) handOver(ctx context.Context, s syscall.Signal, within time.Duration) (time.Duration, error) {
	p, err := h.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Kill() }()
	c, err := newCandidate(ctx, h.Way, h.URL, h.Name, "waiter", h.TTL)
	if err != nil {
		return 0, err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type won struct {
		at  time.Time
		err error
	}
	done := make(chan won, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { err := c.await(ctx); done <- won{time.Now(), err} })
	defer waiter.Wait()
	defer cancel()
	select {
	case w := <-done:
		return 0, fmt.Errorf("%s %s: the waiter had it before its holder ended: %w", h.Way, h.Name, w.err)
	case <-time.After(time.Second + rand.N(h.TTL/3)):
	}
	began := time.Now()
	if err := p.Signal(s); err != nil {
		return 0, err
	}
	select {
	case w := <-done:
		return w.at.Sub(began), w.err
	case <-time.After(within):
		return never, nil
	}
}

// never is a hand-over that did not come.
const never = time.Duration(1<<63 - 1)

// handOvers are all of them, by way and signal. Those that take about a TTL run at once, on names
// of their own.
func handOvers(ctx context.Context, p plan, url string) (map[string]map[syscall.Signal][]time.Duration, error) {
	all := map[string]map[syscall.Signal][]time.Duration{}
	var mu sync.Mutex
	var failed error
	one := func(way string, s syscall.Signal, i int) {
		h := holding{way, url, fmt.Sprintf("hand-over/%s/%d", s, i), p.ttl}
		d, err := h.handOver(ctx, s, p.ttl+10*time.Second)
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		if all[way] == nil {
			all[way] = map[syscall.Signal][]time.Duration{}
		}
		all[way][s] = append(all[way][s], d)
	}
	var waves sync.WaitGroup
	for i := range p.handOvers {
		for _, way := range ways {
			waves.Go(func() { one(way, syscall.SIGKILL, i) })
			waves.Go(func() { one(way, syscall.SIGSTOP, i) })
		}
	}
	waves.Wait()
	for i := range p.handOvers {
		for _, way := range ways {
			waves.Go(func() { one(way, syscall.SIGTERM, i) })
		}
		waves.Wait()
	}
	return all, failed
}
