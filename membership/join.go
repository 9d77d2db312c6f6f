package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Join makes the Keeper's owner a member of group: it holds the lease
// "member/<group>/<id>/<incarnation>" (escaped), which tells the others its
// address, roles, capacity and labels. It returns when the lease is held and all that
// are members are known. If that takes longer than ctx it gives back what it
// acquired, which is waited for a second at the most, and nothing is left behind.
//
// If an earlier life of the ID has not left, its record still stands, and it was at
// another address, Join waits for a second at the most whether it lives. If it does this
// node gives way: ErrIDInUse.
//
// Errors: lease.ErrInvalid for a bad name or option; ErrIDInUse; lease.ErrNameInUse if this
// Keeper has joined the group already; lease.ErrUnsupported for a store that can
// neither watch nor list; lease.ErrClosed; and the context's, with what the store
// had to say.
func Join(ctx context.Context, keeper *lease.Keeper, group string, opts ...Option) (*Group, error) {
	fail := func(err error) (*Group, error) { return nil, fmt.Errorf("join group %.64q: %w", group, err) }
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fail(err)
	}
	set, err := complete(keeper, opts)
	if err != nil {
		return fail(err)
	}
	names, err := namesOf(group)
	if err != nil {
		return fail(err)
	}
	owner := keeper.Owner()
	memberName, noticeName, err := names.own(owner)
	if err != nil {
		return fail(err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	m, err := newInstruments(keeper.MeterProvider(), owner.ID, group)
	if err != nil {
		return fail(fmt.Errorf("metrics: %w", err))
	}
	self := Member{ID: owner.ID, Incarnation: owner.Incarnation, Address: owner.Address,
		Roles: set.roles, Capacity: set.capacity, Labels: set.labels}
	g := &Group{noticeName: noticeName}
	g.names, g.keeper, g.set, g.metrics = names, keeper, set, m
	g.roster, g.now = newRoster(names, self), Snapshot{Group: group}
	g.ready, g.done = make(chan struct{}), make(chan struct{})
	g.log = set.logger.With(zap.String("group", group), zap.String("node", owner.ID))
	g.feed.Log = g.log
	g.feed.Fresh = g.notice
	g.life, g.end = context.WithCancel(context.Background())
	var hold context.Context
	hold, g.stop = context.WithCancel(g.life)

	g.member, err = keeper.Lease(memberName, g.leaseOptions(memberMetadata(self))...)
	if err != nil {
		g.end()
		return fail(err)
	}
	g.member.OnLost(g.onLost)
	g.report()
	g.holders.Go(func() { g.holdMember(hold) })
	for prefix, f := range map[string]func(store.Event) error{names.members: g.roster.member, names.leaving: g.roster.notice} {
		stop, err := keeper.Watch(prefix, func(ev store.Event) { g.hear(ev, f) })
		if err != nil {
			g.abort()
			if errors.Is(err, lease.ErrUnsupported) {
				err = fmt.Errorf("members can't be found: %w", err)
			}
			return fail(err)
		}
		context.AfterFunc(g.life, stop)
	}

	select {
	case <-g.ready:
		if err := g.unopposed(ctx); err != nil {
			g.abort()
			return fail(err)
		}
		return g, nil
	case <-g.done:
		err = lease.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	missing := "the members are not known yet"
	if _, held := g.Term(); !held {
		missing, err = "the member lease is not held yet", errors.Join(err, keeper.Info().Failure)
	}
	g.abort()
	return fail(fmt.Errorf("%s: %w", missing, err))
}

// abort ends a group that was not joined. What it may have acquired is released,
// in the background if that takes longer than the grace.
func (g *Group) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	g.end()
	wait(ctx, g.done)
	if err := g.shut(ctx); err != nil {
		g.log.Warn("giving up to join", zap.Error(err))
	}
}

// unopposed returns nil when no earlier life of the ID objects to this one.
func (g *Group) unopposed(ctx context.Context) error {
	earlier := func() (Member, bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.roster.predecessor()
	}
	m, is := earlier()
	if !is {
		return nil
	}
	name, err := g.names.objection(g.roster.self)
	if err != nil {
		return err
	}
	heard, hear := context.WithCancel(ctx)
	defer hear()
	stop, err := g.keeper.Watch(name, func(ev store.Event) {
		if ev.Kind == store.EventPut && ev.Record.Name == name {
			hear()
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	const look = 20 * time.Millisecond
	for began := g.keeper.Clock().Now().Mono; g.keeper.Clock().Now().Mono-began < objectWithin; {
		g.sleep(heard, look)
		if heard.Err() != nil && ctx.Err() == nil {
			return inUse(m)
		}
		if _, is := earlier(); !is || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// objectWithin is how long a Join waits for the word of an earlier life of its ID
// whose record still stands.
const objectWithin = time.Second
