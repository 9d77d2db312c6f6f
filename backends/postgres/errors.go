package postgres

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

var (
	// ErrFenced: Guard refused, as the lease is not held with that token any more. It is a
	// lease.ErrStale. The transaction can't be committed.
	ErrFenced = fmt.Errorf("the lease is not held with that token: %w", lease.ErrStale)
	// ErrGuarded: a transaction that guards the name is under way (Guard), so that nothing of
	// the request was applied to it.
	ErrGuarded = errors.New("a transaction that guards the lease is under way")
	// ErrSchema: the schema is missing, or older or newer than this version can use. It comes
	// with store.ErrDenied.
	ErrSchema = errors.New("postgres schema of leases")
	// ErrPermission: the role may not do that, or did not say who it is. It comes with
	// store.ErrDenied.
	ErrPermission = errors.New("postgres permission denied")
	// ErrReadOnly: the server is a standby, or takes no writes. It comes with store.ErrDenied.
	ErrReadOnly = errors.New("postgres is read-only")
	// ErrUnsafeServer: a setting or a table of the database breaks what leases rely on, or the
	// server, or a pooler before it, does not support what the Store sends; the text names it. It
	// comes with store.ErrDenied.
	ErrUnsafeServer = errors.New("postgres is not safe for leases")
	// ErrOldPrimary: the server is on an earlier timeline than one that this Store has used, as an
	// old primary is that came back beside the standby that took its place. Nothing was asked of
	// it, and the next call that reaches the other server is answered. It comes with
	// store.ErrDenied. See Store.AcceptHistory.
	ErrOldPrimary = errors.New("postgres is an old primary")
	// ErrWatchOverrun ends a watch whose consumer fell further behind than 65 536 changes.
	ErrWatchOverrun = feed.ErrOverrun
	// ErrWatchLost ends a watch that can't go on without a gap: the log of changes does not
	// reach back far enough, or the history of the database is another one.
	ErrWatchLost = errors.New("postgres store watch lost")
)

// FencedState is the SQLSTATE by which the SQL function guard refuses, for clients of other
// languages: what Guard makes ErrFenced of.
const FencedState = "HF002"

func denied(is error, format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", store.ErrDenied, is, fmt.Errorf(format, args...))
}

// partly is err, which is definite only if nothing of the call was applied.
func partly(err error, outs []store.Outcome) error {
	if slices.ContainsFunc(outs, func(o store.Outcome) bool { return o.OK }) {
		return indefinite(err)
	}
	return err
}

// indefinite is err of a call of which a part was applied before.
func indefinite(err error) error {
	if errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrSessionGone) {
		return fmt.Errorf("postgres: after a part was applied: %v", err)
	}
	return err
}
