package etcd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/store"
)

var (
	// ErrUnreachable: no endpoint answered in time.
	ErrUnreachable = errors.New("no etcd endpoint reachable")
	// ErrPermission: the client's user may not do that, or did not say who it is. It comes
	// with store.ErrDenied where trying again is of no use.
	ErrPermission = errors.New("etcd permission denied")
	// ErrNoLeader: the servers that answered have no leader, or no majority.
	ErrNoLeader = errors.New("etcd has no leader")
	// ErrNoSpace: etcd's quota is used up; it takes no writes.
	ErrNoSpace = errors.New("etcd is out of space")
	// ErrServerTooOld: the server has known faults in leases.
	ErrServerTooOld = errors.New("etcd server too old")
	// ErrProxied: renewals go through etcd's grpc-proxy, which answers them with
	// older answers of its own, so that a deadline counted by them comes too late.
	ErrProxied = errors.New("etcd is behind its grpc-proxy")
)

// partly is err, which store.ErrDenied is only if nothing of the call was applied.
func partly(err error, outs []store.Outcome) error {
	if errors.Is(err, store.ErrDenied) && slices.ContainsFunc(outs, func(o store.Outcome) bool { return o.OK }) {
		return fmt.Errorf("%w, after a part was applied: %v", ErrPermission, err)
	}
	return err
}
