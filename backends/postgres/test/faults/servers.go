//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// down ends the server and starts it again at once.
func down(end func(*postgrestest.Server) error) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		b.begins()
		if err := end(b.server); err != nil {
			return err
		}
		b.lost()
		b.returns()
		return b.server.Restart(ctx)
	}
}

// writers load the server with transactions of their own until stop is called, which returns how
// many were committed.
func writers(ctx context.Context, s *postgrestest.Server) (stop func() int64, err error) {
	if err := s.Exec(ctx, "CREATE TABLE IF NOT EXISTS load (n serial, t text)"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var done atomic.Int64
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := s.Conn(ctx)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				for err == nil && ctx.Err() == nil {
					if _, err = conn.Exec(ctx, "INSERT INTO load (t) SELECT repeat('x', 500) FROM generate_series(1, 20)"); err == nil {
						done.Add(1)
					}
				}
				_ = conn.Close(context.WithoutCancel(ctx)) // it may have ended with the server
			}
		})
	}
	return func() int64 { cancel(); all.Wait(); return done.Load() }, nil
}

func immediateUnderLoad(ctx context.Context, b *bed) error {
	stop, err := writers(ctx, b.server)
	if err != nil {
		return err
	}
	err = errors.Join(wait(ctx, b.ttl/2), down((*postgrestest.Server).StopImmediate)(ctx, b))
	if n := stop(); n < 10 {
		err = errors.Join(err, fmt.Errorf("hardly any load: %d transactions", n))
	}
	return err
}

func paused(ctx context.Context, b *bed) error {
	if err := b.server.Pause(); err != nil {
		return err
	}
	b.lost()
	err := wait(ctx, 3*b.ttl)
	b.returns()
	return errors.Join(err, b.server.Resume())
}

func terminated(ctx context.Context, b *bed) error {
	n, err := b.server.TerminateBackends(ctx)
	if err == nil && n < len(b.nodes) {
		err = fmt.Errorf("%d backends of %d nodes", n, len(b.nodes))
	}
	return err
}

// withStandby adds a standby; nodes look for the one that takes writes.
func withStandby(sync bool) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) (err error) {
		if b.standby, err = b.server.NewStandby(ctx); err != nil {
			return err
		}
		b.noise = false
		b.url = func(i int) (string, error) {
			for _, s := range []*postgrestest.Server{b.server, b.standby} {
				r, err := s.NewRoute()
				if err != nil {
					return "", err
				}
				b.nodes[i].routes = append(b.nodes[i].routes, r)
			}
			return postgrestest.ReadWriteURLOf(role, "postgres", b.nodes[i].routes...), nil
		}
		if sync {
			return b.server.Synchronous(ctx, b.standby)
		}
		return nil
	}
}

func promoted(ctx context.Context, b *bed) error {
	b.begins()
	if err := b.server.Kill(); err != nil {
		return err
	}
	b.lost()
	b.returns()
	return b.standby.Promote(ctx)
}

// moved waits until every node has used the server that was promoted. Names may be held long before:
// a term that began at the old one goes on without any server.
func (b *bed) moved(ctx context.Context, within time.Duration) error {
	deadline := now() + within
	for _, n := range b.nodes {
		for n.store.Timeline() < 2 {
			if now() > deadline {
				return fmt.Errorf("%s has not used the promoted server within %v", n.id, within)
			}
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func andBack(ctx context.Context, b *bed) error {
	if err := promoted(ctx, b); err != nil {
		return err
	}
	if err := b.moved(ctx, most(b.ttl)); err != nil {
		return err
	}
	if err := errors.Join(b.server.Follow(ctx, b.standby), b.standby.Synchronous(ctx, b.server)); err != nil {
		return err
	}
	b.begins()
	if err := b.standby.Kill(); err != nil {
		return err
	}
	b.lost()
	b.returns()
	return b.server.Promote(ctx)
}

func withBouncer(ctx context.Context, b *bed) (err error) {
	b.bouncer, err = b.server.NewBouncer(ctx, map[string]string{"default_pool_size": "4"}, role)
	b.noise = false // LISTEN does nothing there
	b.url = func(int) (string, error) { return b.bouncer.Route().URLOf(role, "postgres"), nil }
	return err
}

func bouncerRestarted(ctx context.Context, b *bed) error {
	b.begins()
	if err := b.bouncer.Kill(); err != nil {
		return err
	}
	b.lost()
	b.returns()
	return b.bouncer.Restart(ctx)
}
