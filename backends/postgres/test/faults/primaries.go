//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backends/postgres"
)

// twoPrimaries: the synchronous standby takes the primary's place, which then comes back as a
// primary, too. All connections to the new one end, and those of one node, which tries the old one
// first, lead there from then on; the others can't reach it. After 2 TTLs the old one is gone. With
// stranger a process begins meanwhile that knows the old one only.
func twoPrimaries(stranger bool) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		b.begins()
		if err := promoted(ctx, b); err != nil {
			return err
		}
		if err := b.moved(ctx, most(b.ttl)); err != nil {
			return err
		}
		b.gone, b.returning = 0, 0 // it goes on
		for _, n := range b.nodes[1:] {
			n.routes[0].Cut()
		}
		err := errors.Join(b.server.Restart(ctx), b.server.Synchronous(ctx))
		if err != nil {
			return err
		}
		if _, err := b.standby.TerminateBackends(ctx); err != nil {
			return err
		}
		b.began = now()
		if stranger {
			if err := b.beginsAtOld(ctx); err != nil {
				return err
			}
		}
		if err := wait(ctx, 2*b.ttl); err != nil {
			return err
		}
		if _, err := b.nodes[0].store.Get(ctx, "any"); !errors.Is(err, postgres.ErrOldPrimary) {
			return fmt.Errorf("a node that reaches the old primary was answered: %w", err)
		}
		return b.server.Kill()
	}
}

// beginsAtOld adds a node that reaches no server but the old primary.
func (b *bed) beginsAtOld(ctx context.Context) error {
	b.url = b.ownRoute
	if err := b.populate(ctx, 1); err != nil {
		return err
	}
	return b.join(b.nodes[len(b.nodes)-1])
}

// onlyByStranger: among the nodes that had used the new primary there was one holder at a time.
func onlyByStranger(b *bed, _ finding) error {
	stranger := b.nodes[len(b.nodes)-1].id
	return judge(slices.DeleteFunc(b.journal.all(), func(e tenure) bool { return e.node == stranger })).err()
}
