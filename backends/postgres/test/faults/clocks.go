//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clockStep steps the clock, and lets it stay so.
func clockStep(by func(ttl time.Duration) time.Duration) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		if err := b.server.SetClock(by(b.ttl)); err != nil {
			return err
		}
		return wait(ctx, 2*b.ttl)
	}
}

// nodeCutOff cuts off the node that holds the first name.
func nodeCutOff(ctx context.Context, b *bed) error {
	holder := b.holder("long/1")
	holder.cut()
	began := now()
	if err := wait(ctx, 2*b.ttl); err != nil {
		return err
	}
	for _, e := range b.journal.all() {
		if e.node == holder.id && e.last > began+b.ttl {
			return fmt.Errorf("a node that was cut off believed for longer than a TTL: %+v", e)
		}
	}
	if _, err := b.held(ctx, began+b.ttl, most(b.ttl)); err != nil {
		return fmt.Errorf("the others don't take over: %w", err)
	}
	holder.heal()
	return nil
}

// holder is the node that last held a name.
func (b *bed) holder(name string) (holder *node) {
	for _, e := range b.journal.all() {
		for _, n := range b.nodes {
			if e.name == name && e.node == n.id {
				holder = n
			}
		}
	}
	return holder
}

// clockBackHolderDead returns once another has the name of the node that is cut off: its session
// lives for as much longer as the clock went back.
func clockBackHolderDead(ctx context.Context, b *bed) error {
	holder := b.holder("long/1")
	holder.cut()
	if err := b.server.SetClock(-2 * b.ttl); err != nil {
		return err
	}
	b.lost()
	b.returning = b.gone // for the others service goes on
	for {
		for _, e := range b.journal.all() {
			if e.name != "long/1" || e.first < b.gone {
				continue
			}
			holder.heal()
			// Its last renewal was sent a third of a TTL before, at most, and a tenth for jitter.
			if after := e.first - b.gone; after < 2*b.ttl+b.ttl/2 {
				return fmt.Errorf("the name of a holder that was cut off was free after %v: the session has not lived longer", after)
			}
			return nil
		}
		if now() > b.gone+3*b.ttl+most(b.ttl) {
			return errors.New("the name of the holder that was cut off never was free")
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
