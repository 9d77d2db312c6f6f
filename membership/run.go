package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file runs work without actors on the member that is preferred. Each member that would run it
// holds a lease of its own, "candidate/<group>/<name>/<id>/<incarnation>", and watches those of the
// others: that is how one knows whom it would make room for.

// ErrPreferred is the cause with which f's context ends in Group.RunForever when a preferred member
// would run f.
var ErrPreferred = errors.New("a preferred member would run it")

const (
	// preferredFirst is how long a member lets each preferred one, and mostFirst of them, try first for
	// a lease that is free.
	preferredFirst = 500 * time.Millisecond
	mostFirst      = 5
	// roomAgain is after how long a member makes room again for one for which it did, and which does not
	// hold the lease: its work may fail, or it may not reach the store.
	roomAgain = 10 * time.Minute
)

// RunForever is lease.RunForever for members that run the same work: f is called on the one that is
// preferred, by the labels with which members joined (WithLabels). l is a lease of this node's own,
// and each member gives the same name and preferences; those that are equal leave f where it is.
//
// When a preferred member calls RunForever, f's context ends here, with the cause ErrPreferred. When
// f has returned l is released, and the other has it next: in a rollout by version the work moves
// once, to the first node of the new one. What f returned then does not count, nil neither, unless it
// is lease.ErrStop. A name that is free waits half a second for each preferred member, 2.5 s at the
// most. For one that does not take it, or loses it though its membership stands, room is made again
// after 10 minutes; for a node that joined again, at once.
//
// It ends as lease.RunForever does, and when the Group ends: lease.ErrClosed then, unless f has
// returned nil. Errors before f is called: lease.ErrInvalid, as of Preferences.Validate;
// lease.ErrNameInUse while it is called for a lease of that name already; lease.ErrClosed. A panic of
// f is passed on after the release.
func (g *Group) RunForever(
	ctx context.Context, l *lease.Handle, f func(ctx context.Context, t lease.Term) error, by ...Preference,
) error {
	if err := g.check(ctx); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("group %.64q: RunForever: %w", g.names.group, err) }
	if g.life.Err() != nil {
		return fail(lease.ErrClosed)
	}
	if l == nil || f == nil {
		return fail(fmt.Errorf("%w: the lease and f must not be nil", lease.ErrInvalid))
	}
	if err := Preferences(by).Validate(); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.life, func() { cancel(lease.ErrClosed) })()
	r := &runner{Handle: l, g: g, by: by, candidates: map[string]lease.Record{}, madeRoom: map[lease.Token]time.Duration{}}
	r.change()
	r.known, r.synced = context.WithCancel(context.Background())
	stop, err := r.follow()
	if err != nil {
		return fail(err)
	}
	defer stop()
	r.rest(ctx, r.known, preferredFirst)
	for {
		r.madeRoomNow = false
		err := lease.RunForever(ctx, r, func(ctx context.Context, t lease.Term) error { return r.run(ctx, t, f) })
		switch {
		case r.madeRoomNow:
			g.log.Info("made room for a preferred member", zap.String("lease", l.Name()), zap.Error(err))
		case err != nil && g.life.Err() != nil:
			return fail(fmt.Errorf("%w; before that: %w", lease.ErrClosed, err))
		default:
			return err
		}
	}
}

// runner is a call of RunForever, and its lease, which lets preferred members try first.
type runner struct {
	*lease.Handle
	g  *Group
	by Preferences

	madeRoomNow bool // when f has returned
	candidacy   *lease.Handle
	stands      bool // it is held, or tried for
	endStanding context.CancelFunc
	standing    sync.WaitGroup

	known  context.Context // until the candidates are
	synced context.CancelFunc

	mu         sync.Mutex
	candidates map[string]lease.Record       // by name
	madeRoom   map[lease.Token]time.Duration // when, by the token of the membership
	news       context.Context               // until anything changes
	ended      context.CancelFunc
}

// Unwrap is for calls of lease.Run, of which those for one lease take turns.
func (r *runner) Unwrap() lease.Lease { return r.Handle }

// follow follows those that would run f, and makes the lease by which this member says so.
func (r *runner) follow() (stop func(), err error) {
	self := r.g.keeper.Owner()
	name, err := lease.Name("candidate", r.g.names.group, r.Name(), self.ID, self.Incarnation)
	if err != nil {
		return nil, err
	}
	all, err := lease.Name("candidate", r.g.names.group, r.Name())
	if err != nil {
		return nil, err
	}
	if r.candidacy, err = r.g.keeper.Lease(name, r.g.leaseOptions(nil)...); err != nil {
		return nil, err
	}
	unwatch, err := r.g.keeper.Watch(all+"/", r.hear)
	if err != nil {
		_ = r.candidacy.Close(context.Background()) // it was never acquired
		return nil, err
	}
	unfollow := r.g.Follow(func(MembersChanged) { r.change() })
	return func() {
		unfollow()
		unwatch()
		r.standDown()
		r.standing.Wait()
		_ = r.candidacy.Close(context.Background()) // bounded by the lease's own bounds
	}, nil
}

// stand has the others know that this member would run f, from when it tries to until it has lost a
// term: it pauses then.
func (r *runner) stand(ctx context.Context) {
	if r.stands {
		return
	}
	r.standing.Wait()
	ctx, end := context.WithCancel(ctx)
	r.stands, r.endStanding = true, end
	r.standing.Go(func() { r.g.hold(ctx, r.candidacy, turns{}) })
}

func (r *runner) standDown() {
	if r.stands {
		r.stands = false
		r.endStanding()
	}
}

// hear takes up an event of a candidate's record.
func (r *runner) hear(ev store.Event) {
	defer r.change()
	r.mu.Lock()
	defer r.mu.Unlock()
	if ev.Kind == store.EventSynced {
		r.synced()
	}
	name := ev.Record.Name
	if outdate(r.candidates, name, r.candidates[name].Token, ev) {
		r.candidates[name] = ev.Record
	}
}

// change says that candidates or members may have changed.
func (r *runner) change() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		r.ended()
	}
	r.news, r.ended = context.WithCancel(context.Background())
}

// preferred returns the candidates that are preferred to this member, and what ends when they may have
// changed.
func (r *runner) preferred() (all []Member, news context.Context) {
	r.mu.Lock()
	news = r.news // before members are read: none of their changes is missed
	r.mu.Unlock()
	members := r.g.Members()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.candidates {
		m, ok := members.Find(c.Owner.ID)
		if ok && m.Incarnation == c.Owner.Incarnation && !m.Leaving && r.by.Compare(m.Labels, r.g.Labels()) < 0 {
			all = append(all, m)
		}
	}
	return all, news
}

// Acquire lets preferred members try first, the best of them before the others. If the lease is free
// all the same they do not take it.
func (r *runner) Acquire(ctx context.Context) (bool, error) {
	r.stand(ctx)
	began := r.now()
	all, news := r.preferred()
	for ; ctx.Err() == nil; all, news = r.preferred() {
		left := began + time.Duration(min(len(all), mostFirst))*preferredFirst - r.now()
		if left <= 0 {
			break
		}
		r.rest(ctx, news, left)
	}
	won, err := r.Handle.Acquire(ctx)
	if won {
		r.made(all)
	}
	return won, err
}

// made notes for whom this member made room.
func (r *runner) made(all []Member) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.madeRoom, func(_ lease.Token, at time.Duration) bool { return now-at >= roomAgain })
	for _, c := range all {
		r.madeRoom[c.Token] = now
	}
}

// run runs f until it is to make room for a preferred member.
func (r *runner) run(ctx context.Context, t lease.Term, f func(context.Context, lease.Term) error) error {
	work, cancel := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel(nil)
	following.Go(func() {
		for work.Err() == nil {
			all, news := r.preferred()
			wait, is := r.due(all)
			if is {
				r.made(all)
				cancel(ErrPreferred)
				return
			}
			r.rest(work, news, wait)
		}
	})
	err := f(work, t)
	if !t.CheckAlive() {
		r.standDown()
	}
	if errors.Is(context.Cause(work), ErrPreferred) && !errors.Is(err, lease.ErrStop) {
		r.madeRoomNow = true
		return fmt.Errorf("%w: %w", lease.ErrStop, errors.Join(ErrPreferred, err))
	}
	return err
}

// due reports whether to make room for one of the candidates now, or in how long to look again.
func (r *runner) due(all []Member) (wait time.Duration, is bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = roomAgain
	for _, c := range all {
		at, made := r.madeRoom[c.Token]
		if !made || now-at >= roomAgain {
			return 0, true
		}
		wait = min(wait, at+roomAgain-now)
	}
	return wait, false
}

// rest waits for d, for news, or for the end of ctx.
func (r *runner) rest(ctx, news context.Context, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(news, cancel)()
	r.g.sleep(ctx, d)
}

func (r *runner) now() time.Duration { return r.g.keeper.Clock().Now().Mono }
