package lease

import "context"

// careful is a NameStore whose panics are errors: it is called by goroutines of
// PerName, and the books are kept whatever it does.
type careful struct{ names NameStore }

func (c careful) Acquire(ctx context.Context, s Session, claim Claim) (out Outcome, err error) {
	defer caught(&err)
	return c.names.Acquire(ctx, s, claim)
}

func (c careful) Renew(ctx context.Context, s Session, h Held) (ok bool, err error) {
	defer caught(&err)
	return c.names.Renew(ctx, s, h)
}

func (c careful) Release(ctx context.Context, h Held) (ok bool, err error) {
	defer caught(&err)
	return c.names.Release(ctx, h)
}

func (c careful) Get(ctx context.Context, name string) (r Record, ok bool, err error) {
	defer caught(&err)
	return c.names.Get(ctx, name)
}

// carefulTransferer is careful for a NameTransferer.
type carefulTransferer struct{ names NameTransferer }

func (c carefulTransferer) Transfer(ctx context.Context, m Move) (out Outcome, err error) {
	defer caught(&err)
	return c.names.Transfer(ctx, m)
}

// caught, deferred, makes an error of a panic.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
	}
}
