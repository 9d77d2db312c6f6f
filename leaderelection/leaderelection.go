// Package leaderelection is for programs that elect a leader with client-go's package of this name, and
// want what a lease of Holdfast gives: the same fields and callbacks, over any store, of which that of
// package backends/kubernetes is one.
//
//	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
//		Lock:            leaderelection.Lock{Store: store, Name: "controller", Identity: id},
//		LeaseDuration:   15 * time.Second,
//		RenewDeadline:   10 * time.Second,
//		RetryPeriod:     2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: run, // func(context.Context)
//			OnStoppedLeading: stopped,
//			OnNewLeader:      func(identity string) { … },
//		},
//	})
//	…
//	err = le.Run(ctx)
//
// What differs from client-go:
//
//   - The context of OnStartedLeading is done before another can lead, and carries the term: TermOf has
//     its fencing token, and CheckAlive, which reads the clock when it is asked.
//   - The lease is released after OnStartedLeading has returned, never before, and Run returns after it.
//   - There is no RunOrDie: settings that can't be are an error of NewLeaderElector.
//
// Processes with client-go's package elect another leader: in a rolling update there are two. End all
// of the old ones first.
//
// Who begins with Holdfast calls lease.Run or lease.RunForever, and shares one Keeper among all leases.
package leaderelection

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// jitterFactor is client-go's: by how much RenewDeadline must be above RetryPeriod.
const jitterFactor = 1.2

// Lock is what is led for, and who asks to lead.
type Lock struct {
	// Store keeps the record. Several electors may share it.
	Store store.Store
	// Name is the lease's, as lease.Keeper.Lease takes it.
	Name string
	// Identity names this candidate to people and to OnNewLeader. Two candidates should not have the
	// same; if they do, one leads at a time all the same.
	Identity string
}

// LeaderElectionConfig is client-go's, with a Lock of this package.
type LeaderElectionConfig struct {
	Lock Lock
	// LeaseDuration is how long a record outlives its last renewal: after a crash another leads so much
	// later. Default 15 s, at least lease.MinTTL and the store's minimum.
	LeaseDuration time.Duration
	// RenewDeadline is for how long after a renewal was sent its leader leads. Default two thirds of
	// LeaseDuration; it must be below that, by what clocks may differ.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and between looks of a candidate where the store can't
	// watch. Default a fifth of RenewDeadline, which must be above 1.2 times RetryPeriod.
	RetryPeriod time.Duration
	Callbacks   LeaderCallbacks
	// WatchDog finds a leader that leads no more and whose OnStartedLeading goes on. nil: none.
	WatchDog *HealthzAdaptor
	// ReleaseOnCancel gives the lease up when Run's context is done and OnStartedLeading has returned,
	// so that the next leads at once. Leave it false if work goes on after OnStartedLeading returns: then
	// the record runs out.
	ReleaseOnCancel bool
	// Name is for WatchDog's errors. Default: the Lock's.
	Name string
}

// LeaderCallbacks are called by Run. The first two must be set.
type LeaderCallbacks struct {
	// OnStartedLeading is called when this candidate leads, with a context that is done when it leads no
	// more or Run's is done. It may return before: then the candidate leads on.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called once by each Run, also if it did not lead: after a loss as soon as the
	// context of OnStartedLeading is done, which may still run; else at the end, after the release.
	OnStoppedLeading func()
	// OnNewLeader is called with who leads when that is learnt, and with each change, also for this
	// candidate. Calls are in order, one at a time, on a goroutine of their own.
	OnNewLeader func(identity string)
}

// LeaderElector is one candidate. Make it with NewLeaderElector. Its methods are safe for concurrent use,
// but Run, of which one call at a time may be made.
type LeaderElector struct {
	config LeaderElectionConfig
	leader atomic.Pointer[string]
	leads  atomic.Pointer[leading]
}

// leading is a call of OnStartedLeading that has not returned.
type leading struct {
	lease.Term
	lost atomic.Pointer[time.Time] // when it was seen to lead no more
}

// NewLeaderElector checks the settings. An error is lease.ErrInvalid and names the field and its bound.
func NewLeaderElector(c LeaderElectionConfig) (*LeaderElector, error) {
	bad := func(field string, got any, bound string) (*LeaderElector, error) {
		return nil, fmt.Errorf("LeaderElectionConfig.%s: %w: %v, must be %s", field, lease.ErrInvalid, got, bound)
	}
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 15*time.Second)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, c.LeaseDuration/3*2)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, c.RenewDeadline/5)
	c.Name = cmp.Or(c.Name, c.Lock.Name)
	switch {
	case c.Callbacks.OnStartedLeading == nil:
		return bad("Callbacks.OnStartedLeading", "nil", "set")
	case c.Callbacks.OnStoppedLeading == nil:
		return bad("Callbacks.OnStoppedLeading", "nil", "set")
	case c.Lock.Identity == "":
		return bad("Lock.Identity", `""`, "set")
	case c.LeaseDuration < lease.MinTTL:
		return bad("LeaseDuration", c.LeaseDuration, fmt.Sprintf("at least %v", lease.MinTTL))
	case c.RetryPeriod < time.Millisecond:
		return bad("RetryPeriod", c.RetryPeriod, "at least 1ms")
	case c.RenewDeadline >= c.LeaseDuration:
		return bad("RenewDeadline", c.RenewDeadline, fmt.Sprintf("below LeaseDuration, %v", c.LeaseDuration))
	case float64(c.RenewDeadline) <= jitterFactor*float64(c.RetryPeriod):
		return bad("RenewDeadline", c.RenewDeadline, fmt.Sprintf("above %v times RetryPeriod, %v", jitterFactor, c.RetryPeriod))
	}
	le := &LeaderElector{config: c}
	k, _, err := le.open()
	if err != nil {
		return nil, fmt.Errorf("LeaderElectionConfig: %w", err)
	}
	shut(k, 0)
	if c.WatchDog != nil {
		c.WatchDog.SetLeaderElection(le)
	}
	return le, nil
}

// open makes the Keeper and the lease of one Run.
func (le *LeaderElector) open() (*lease.Keeper, *lease.Handle, error) {
	c := le.config
	k, err := lease.NewKeeper(c.Lock.Store, lease.Config{
		ID: c.Lock.Identity, TTL: c.LeaseDuration, Margin: c.LeaseDuration - c.RenewDeadline,
		RenewFraction: float64(c.RetryPeriod) / float64(c.LeaseDuration), Jitter: -1, PollMin: c.RetryPeriod,
	})
	if err != nil {
		return nil, nil, err
	}
	l, err := k.Lease(c.Lock.Name)
	if err != nil {
		shut(k, 0)
	}
	return k, l, err
}

// shut ends a Keeper. What is not released within that time runs out.
func shut(k *lease.Keeper, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = k.Close(ctx) // what stands after it runs out, and is in its log
}

// goodbye is how long Run waits at its end for the store to close an empty session.
const goodbye = time.Second

// Run waits until it leads, leads until it has lost that or ctx is done, and returns when
// OnStartedLeading has. Call it again to be a candidate again. It returns ctx's error if it never led,
// what the lease was lost by (lease.ErrExpired and others, see lease.Loss), joined with why the release
// failed; nil after a planned end. A panic of a callback is passed on after the release.
func (le *LeaderElector) Run(ctx context.Context) error {
	if le.config.Callbacks.OnStoppedLeading == nil {
		return fmt.Errorf("leader election: %w: the zero value, must come from NewLeaderElector", lease.ErrInvalid)
	}
	stopped := sync.OnceFunc(le.config.Callbacks.OnStoppedLeading)
	defer stopped()
	k, l, err := le.open()
	if err != nil {
		return err
	}
	candidate, within := lease.Lease(l), goodbye
	if !le.config.ReleaseOnCancel {
		candidate, within = unreleased{l}, 0
	}
	defer func() { shut(k, within) }()
	reported := ""
	stop, err := k.FollowHolder(l.Name(), func(h lease.Holding) {
		if h.State == lease.HolderUnknown {
			return
		}
		id := h.Record.Owner.ID
		le.leader.Store(&id)
		if f := le.config.Callbacks.OnNewLeader; f != nil && id != "" && id != reported {
			reported = id
			f(id)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	return lease.Run(ctx, candidate, func(work context.Context, t lease.Term) error {
		now := &leading{Term: t}
		le.leads.Store(now)
		defer le.leads.Store(nil)
		defer context.AfterFunc(t.Context(), func() {
			defer func() { _ = recover() }() // a panic of OnStoppedLeading comes again from Run's call
			at := time.Now()
			now.lost.Store(&at)
			stopped()
		})()
		le.config.Callbacks.OnStartedLeading(context.WithValue(work, termKey{}, t))
		<-work.Done()
		return nil
	})
}

// unreleased is a lease that runs out instead of being released.
type unreleased struct{ *lease.Handle }

func (unreleased) Release(context.Context) error { return nil }

type termKey struct{}

// TermOf returns the term of a context that OnStartedLeading was called with, or of one made from it. Give
// its Token to what is written to, and ask CheckAlive before what must not be done twice.
func TermOf(ctx context.Context) (lease.Term, bool) {
	t, ok := ctx.Value(termKey{}).(lease.Term)
	return t, ok
}

// IsLeader reports whether this candidate leads at this moment, by its own clock.
func (le *LeaderElector) IsLeader() bool {
	now := le.leads.Load()
	return now != nil && now.CheckAlive()
}

// GetLeader returns the identity of the leader that was seen last, while Run runs; empty if there was none.
func (le *LeaderElector) GetLeader() string {
	if id := le.leader.Load(); id != nil {
		return *id
	}
	return ""
}

// Check returns an error if the lease was lost more than maxTolerableExpiredLease ago and
// OnStartedLeading has not returned yet.
func (le *LeaderElector) Check(maxTolerableExpiredLease time.Duration) error {
	now := le.leads.Load()
	if now == nil {
		return nil
	}
	if at := now.lost.Load(); at != nil && time.Since(*at) > maxTolerableExpiredLease {
		return fmt.Errorf("leader election %s: the lease was lost %v ago, and OnStartedLeading has not returned",
			le.config.Name, time.Since(*at).Round(time.Millisecond))
	}
	return nil
}

// HealthzAdaptor is a check for a liveness probe. Make it with NewLeaderHealthzAdaptor, and give it to
// LeaderElectionConfig.WatchDog. Its methods are safe for concurrent use.
type HealthzAdaptor struct {
	timeout time.Duration
	le      atomic.Pointer[LeaderElector]
}

// NewLeaderHealthzAdaptor returns a check that fails when OnStartedLeading has gone on for longer than
// timeout after a loss.
func NewLeaderHealthzAdaptor(timeout time.Duration) *HealthzAdaptor {
	return &HealthzAdaptor{timeout: timeout}
}

// Name is "leaderElection".
func (*HealthzAdaptor) Name() string { return "leaderElection" }

// SetLeaderElection says which elector is checked. NewLeaderElector calls it.
func (h *HealthzAdaptor) SetLeaderElection(le *LeaderElector) { h.le.Store(le) }

// Check is LeaderElector.Check of the elector; nil while there is none.
func (h *HealthzAdaptor) Check(*http.Request) error {
	if le := h.le.Load(); le != nil {
		return le.Check(h.timeout)
	}
	return nil
}
