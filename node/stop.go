package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// watch stops the node by a signal, or after the end of the actor system, when Start has
// done what it does. interrupt ends what Start waits for. From the first signal on, signals do what they did before, so
// that a second one ends the process.
func (n *Node) watch(interrupt context.CancelCauseFunc) {
	came := make(chan os.Signal, 1)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(came)
		defer actors.AfterShutdown(n.system, func() {
			<-n.begun
			n.stopWithin("the end of the actor system")
		})()
		select {
		case s := <-came:
			signal.Stop(came)
			cause := fmt.Errorf("%w by a signal, %v", ErrStopped, s)
			interrupt(cause)
			n.end(cause)
			<-n.begun
			n.stopWithin("a signal, " + s.String())
		case <-n.stopped:
		}
	}()
}

// stopWithin is Stop with the time that Config gives.
func (n *Node) stopWithin(why string) {
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.StopWithin)
	defer cancel()
	n.log.Info("the node stops", zap.String("cause", why), zap.Duration("within", n.cfg.StopWithin))
	_ = n.Stop(ctx) // Run returns it
}

// Run returns when the node has stopped: by Stop, by an interrupt or SIGTERM, by the end of the actor
// system, or because ctx ended; in all but the first within Config.StopWithin. It
// returns what Stop returned. Signals count from Start on: one that came earlier ends
// the node too. A second signal does what it would do without the node; by default it
// ends the process.
func (n *Node) Run(ctx context.Context) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	n.tellUnused(n.unused(func(t *timing) bool { return !t.named() }))
	select {
	case <-ctx.Done():
		n.stopWithin(context.Cause(ctx).Error())
	case <-n.stopped:
	}
	<-n.stopped
	return n.err
}

// Stop ends the node: its sharded types, its partitions, and every singleton of its actor system, side
// by side; then the group, the Keeper, remoting and HTTP. Readiness fails from its beginning on.
//
// A step that ctx ends early does not keep the later ones from being done. The same holds once no
// lease is held any more and the store has been away for two seconds. The error
// names the steps that left something behind, and what: leases that were not released
// are free for others a TTL after. What each step took is logged. Only the first call's
// ctx counts; a later call waits for the first, or until its own ctx ends. Stop waits for handlers
// that run: a handler calls it on another goroutine.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	first := !n.stopping
	n.stopping = true
	n.mu.Unlock()
	if first {
		n.end(ErrStopped)
		n.tellUnused(n.UnusedSettings())
		n.stop(ctx)
		close(n.stopped)
		return n.err
	}
	select {
	case <-n.stopped:
		return n.err
	case <-ctx.Done():
		return fmt.Errorf("the node stops still: %w", context.Cause(ctx))
	}
}

// uselessAfter is for how long a Stop goes on where it can hand over and release nothing.
const uselessAfter = 2 * time.Second

// useful ends ctx once no lease is held any more and the store is away, which it says.
func useful(ctx context.Context, k *lease.Keeper) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for since := time.Now(); k != nil && ctx.Err() == nil; time.Sleep(time.Second / 4) {
			if in := k.Info(); in.Failure == nil || in.Held > 0 {
				since = time.Now()
			} else if time.Since(since) >= uselessAfter {
				cancel(fmt.Errorf("no lease is held any more, and the store is away: %w", in.Failure))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (n *Node) stop(ctx context.Context) {
	ctx, cancel := useful(ctx, n.keeper)
	defer cancel()
	n.step("what was being started", func() error { return boundary.Wait(ctx, &n.starting) })
	n.step("sharded types, partitions and singletons", func() error { return n.stopParts(ctx) })
	if g := n.Group(); g != nil {
		n.step("group", func() error { return g.Leave(ctx) })
	}
	if n.page != nil {
		n.page.Close()
	}
	if n.keeper != nil {
		n.step("keeper", func() error { return n.keeper.Close(ctx) })
	}
	if n.remote != nil {
		n.step("remoting", func() error { n.remote.Shutdown(true); return nil })
	}
	if n.web != nil {
		n.step("HTTP", func() error { return n.web.close(ctx) })
	}
	n.step("actor system", func() error {
		if !n.system.IsStopped() {
			n.system.Shutdown()
		}
		return nil
	})
	if n.err != nil {
		n.log.Error("the node has stopped, and left something behind", append(n.took, zap.Error(n.err))...)
	} else {
		n.log.Info("the node has stopped", n.took...)
	}
}

// ending is a Stop.
type ending struct {
	stopped chan struct{} // closed when it has ended
	took    []zap.Field   // each step, for the log
	err     error
}

func (e *ending) step(name string, f func() error) {
	began := time.Now()
	err := boundary.Call(f)
	took := time.Since(began)
	e.took = append(e.took, zap.Duration(strings.ReplaceAll(name, " ", "_"), took))
	if err != nil {
		e.err = errors.Join(e.err, fmt.Errorf("stopping %s, after %v: %w", name, took.Round(time.Millisecond), err))
	}
}

func (n *Node) stopParts(ctx context.Context) error {
	return n.each(func(r *sharding.Region) error { return r.Stop(ctx) }, func(p *partition.Partitions) error { return p.Stop(ctx) },
		func() error { return singleton.StopAll(ctx, n.system) })
}

// each has something done with each of the node's Regions and Partitions, and with all its singletons,
// side by side.
func (n *Node) each(region func(*sharding.Region) error, partitions func(*partition.Partitions) error, singletons func() error) error {
	spread := n.spreading()
	n.mu.Lock()
	regions := n.regions
	n.mu.Unlock()
	errs := make([]error, len(regions)+len(spread)+1)
	var all sync.WaitGroup
	for i, r := range regions {
		all.Go(func() { errs[i] = boundary.Call(func() error { return region(r) }) })
	}
	for i, p := range spread {
		all.Go(func() { errs[len(regions)+i] = boundary.Call(func() error { return partitions(p) }) })
	}
	errs[len(errs)-1] = boundary.Call(singletons)
	all.Wait()
	return errors.Join(errs...)
}
