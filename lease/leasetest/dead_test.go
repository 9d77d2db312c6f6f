package leasetest

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// dead is a store whose backing does not answer.
type dead struct{ flaw flaw }

func unreachable(f flaw) Factory {
	return func(TB) func() lease.Store { return func() lease.Store { return dead{f} } }
}

func (d dead) wait(ctx context.Context) error {
	<-ctx.Done()
	switch d.flaw {
	case hangs:
		time.Sleep(10 * time.Second)
	case goneUnreachable:
		return lease.ErrSessionGone
	}
	return ctx.Err()
}

func (d dead) OpenSession(ctx context.Context, _ lease.Session) (lease.Grant, error) {
	return lease.Grant{}, d.wait(ctx)
}

func (d dead) CloseSession(ctx context.Context, _ lease.Session) error { return d.wait(ctx) }

func (d dead) Acquire(ctx context.Context, _ lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	err := d.wait(ctx)
	if d.flaw == refusesUnreachable {
		return make([]lease.Outcome, len(claims)), nil
	}
	return nil, err
}

func (d dead) Renew(ctx context.Context, _ []lease.Session) ([]lease.Grant, error) {
	return nil, d.wait(ctx)
}

func (d dead) Release(ctx context.Context, _ []lease.Held) ([]lease.Outcome, error) {
	return nil, d.wait(ctx)
}

func (d dead) Transfer(ctx context.Context, _ []lease.Transfer) ([]lease.Outcome, error) {
	return nil, d.wait(ctx)
}

func (d dead) Get(ctx context.Context, _ ...string) ([]lease.Record, error) { return nil, d.wait(ctx) }

func (d dead) List(ctx context.Context, _ string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, d.wait(ctx)) }
}

func (d dead) Watch(ctx context.Context, _ string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		<-ctx.Done()
		if d.flaw == hangsWatching {
			time.Sleep(10 * time.Second)
		}
		yield(lease.Event{}, ctx.Err())
	}
}
