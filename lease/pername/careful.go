package pername

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/routines"
	"github.com/holdfast-go/holdfast/lease"
)

// careful is a Backend that answers, or fails: a panic is an error, and so is the end of the
// goroutine. So the books are kept whatever it does.
type careful struct{ names Backend }

func (c careful) Acquire(ctx context.Context, s lease.Session, claim lease.Claim) (out lease.Outcome, err error) {
	err = routines.Apart(func() (err error) { out, err = c.names.Acquire(ctx, s, claim); return err })
	return out, err
}

func (c careful) Renew(ctx context.Context, s lease.Session, h lease.Held) (ok bool, err error) {
	err = routines.Apart(func() (err error) { ok, err = c.names.Renew(ctx, s, h); return err })
	return ok, err
}

func (c careful) Release(ctx context.Context, h lease.Held) (ok bool, err error) {
	err = routines.Apart(func() (err error) { ok, err = c.names.Release(ctx, h); return err })
	return ok, err
}

func (c careful) Get(ctx context.Context, name string) (r lease.Record, ok bool, err error) {
	err = routines.Apart(func() (err error) { r, ok, err = c.names.Get(ctx, name); return err })
	return r, ok, err
}

// carefulTransferer is careful for a Transferer.
type carefulTransferer struct{ names Transferer }

func (c carefulTransferer) Transfer(ctx context.Context, m lease.Transfer) (out lease.Outcome, err error) {
	err = routines.Apart(func() (err error) { out, err = c.names.Transfer(ctx, m); return err })
	return out, err
}

// carefulLister is careful for a Lister: where the listing fails so, it ends with the error. Who
// consumes it does so on their own goroutine, where a panic is theirs.
type carefulLister struct{ names Lister }

func (c carefulLister) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		next, stop := iter.Pull2(func(yield func(lease.Record, error) bool) { c.names.List(ctx, prefix)(yield) })
		defer func() { _ = routines.Apart(func() error { stop(); return nil }) }()
		for {
			var r lease.Record
			var bad error
			var more bool
			if err := routines.Apart(func() error { r, bad, more = next(); return nil }); err != nil {
				yield(lease.Record{}, err)
				return
			}
			if !more || !yield(r, bad) {
				return
			}
		}
	}
}
