package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/store"
)

const (
	mostPreparing = 64
	pace          = 25 * time.Millisecond  // between two plans
	gather        = time.Second            // after it began to take part a node owns nothing for so long: others may come
	answersWithin = 2 * time.Second        // that a strategy has
	plansAgain    = 250 * time.Millisecond // after a partition moved, and while time alone may change what is due
	looksEvery    = time.Second            // for nodes with another Count
	handsOverIn   = 10 * time.Second       // after Stop: what no node of another list is ready for then is given up
)

// Partitions is one node's part in the partitions of one Name. Start makes it; end it with Stop. Safe
// for concurrent use.
type Partitions struct {
	cfg       Config
	group     *membership.Group
	keeper    *lease.Keeper
	log       *zap.Logger
	line      boundary.Line
	preparing chan struct{}
	moving    chan struct{}
	asking    atomic.Bool // a strategy that was asked has not answered
	moves     atomic.Int64
	meters    *instruments

	running
	mu sync.Mutex
	table
	here
}

// running ends what Start began.
type running struct {
	began  time.Time
	under  []lease.Option // the parent of what this node owns, with a Count
	life   context.Context
	end    context.CancelFunc
	closed chan struct{} // when all has ended
	woken  chan struct{} // has a value when a plan is due
	later  chan struct{} // has a value when one is due soon
	wg     sync.WaitGroup
	works  sync.WaitGroup // the slots
}

// here is what this node owns, and should own.
type here struct {
	slots    map[int]*slot
	plan     view
	target   []string
	drained  bool
	since    time.Time     // when it began to take part; zero: not yet
	cleared  lease.Term    // of counts, when no node owned anything by another Count; nil: it is not known
	stopping time.Time     // when Stop was called; zero: it was not
	decided  chan struct{} // closed and replaced with each decision
}

// Start has this node take part. It returns at once; Wait waits until partitions have their owners.
// The node gets its first partitions after a second at the earliest, so that nodes that start
// together share them out once. What happens is logged by the Keeper's logger.
//
// It goes on until Stop. Errors: lease.ErrInvalid, with the field; lease.ErrNameInUse if Name runs on
// this Keeper already; lease.ErrUnsupported if the store can neither watch nor list; lease.ErrClosed.
func Start(ctx context.Context, group *membership.Group, cfg Config) (*Partitions, error) {
	return start(ctx, group, cfg, false)
}

// Daemons runs f for each number from 0 to n-1, each on one node at a time, spread over the nodes, and
// calls it again when it returns, as Config.Own has it. While nodes differ in n, as in a rollout, the
// n of the node that was started last counts: those with another begin no daemon, and daemons from n on
// stop. A daemon that returns five times in a row, none of them a minute after it was called, is begun
// on another node.
//
// Errors: those of Start.
func Daemons(ctx context.Context, group *membership.Group, name string, n int, f func(ctx context.Context, i int) error) (*Partitions, error) {
	cfg := Config{Name: name, Count: n}
	if f != nil {
		cfg.Own = func(ctx context.Context, o Owned) error { return f(ctx, o.Number) }
	}
	return start(ctx, group, cfg, true)
}

func start(ctx context.Context, group *membership.Group, cfg Config, daemons bool) (*Partitions, error) {
	fail := func(err error) (*Partitions, error) { return nil, about(cfg.Name, err) }
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fail(err)
	}
	if group == nil || group.Keeper() == nil {
		return fail(fmt.Errorf("group: %w: not joined, must come from membership.Join", lease.ErrInvalid))
	}
	l, err := cfg.complete(daemons)
	if err != nil {
		return fail(err)
	}
	k := group.Keeper()
	prefix, err := lease.Name("partition", group.Name(), cfg.Name)
	if err != nil {
		return fail(err)
	}
	p := &Partitions{cfg: cfg, group: group, keeper: k, log: k.Logger().With(zap.String("partitions", cfg.Name)), preparing: make(chan struct{}, mostPreparing), moving: make(chan struct{}, mostMoving),
		table:   table{layout: l, prefix: prefix + "/", self: k.Owner().Incarnation},
		here:    here{slots: map[int]*slot{}, decided: make(chan struct{})},
		running: running{began: time.Now(), closed: make(chan struct{}), woken: make(chan struct{}, 1), later: make(chan struct{}, 1)}}
	p.table.clear()
	if p.meters, err = measure(k, cfg.Name); err != nil {
		return fail(err)
	}
	for i := range l.names { // the longest name that is made of it
		if err := k.Validate(p.nameOf(kindSick, i) + "/" + p.self); err != nil {
			return fail(fmt.Errorf("key %.64q: %w", l.keys[i], err))
		}
	}
	stop, err := k.Watch(p.prefix, p.hear)
	if err != nil {
		return fail(err)
	}
	host, err := p.ofNode(kindHost)
	var counts *lease.Handle
	if err == nil && l.strict {
		if counts, err = p.ofNode(kindCounts); err != nil {
			_ = host.Close(context.WithoutCancel(ctx)) // nothing was acquired
		}
		p.under = []lease.Option{lease.WithParent(counts)}
	}
	if err != nil {
		stop()
		return fail(err)
	}
	p.life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.wg.Go(func() { p.keep(host, p.takes, p.takePart) })
	p.wg.Go(p.decideAll)
	if l.strict {
		p.wg.Go(func() { p.keep(counts, p.reigns, p.reign) })
	}
	unfollow := group.Follow(func(membership.MembersChanged) { p.wake() })
	context.AfterFunc(p.life, func() {
		defer close(p.closed)
		stop()
		unfollow()
		p.works.Wait()
		p.wg.Wait()
	})
	return p, nil
}

// about names the partitions in an error; nil stays nil.
func about(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("partitions %.64q: %w", name, err)
	}
	return err
}

// check is the beginning of the calls that a user may make of the zero value, or with no context.
func (p *Partitions) check(ctx context.Context) error {
	if p.keeper == nil {
		return fmt.Errorf("partitions: %w: the zero value, must come from partition.Start", lease.ErrInvalid)
	}
	return about(p.cfg.Name, input.Context(ctx, lease.ErrInvalid))
}

// ofNode makes a lease of this node's, which says what its layout is.
func (p *Partitions) ofNode(kind string) (*lease.Handle, error) {
	o := p.keeper.Owner()
	name, err := lease.Name(kind, o.ID, o.Incarnation)
	if err != nil {
		return nil, err
	}
	return p.keeper.Lease(p.prefix+name, lease.WithMetadata(map[string]string{
		keyLayout: p.id, keyCame: strconv.FormatInt(p.keeper.Clock().Now().Wall/1000, 10)}))
}

func (p *Partitions) nameOf(kind string, n int) string { return p.prefix + kind + "/" + p.names[n] }

// wake has the node plan again.
func (p *Partitions) wake() { poke(p.woken) }

// poke puts a value into a channel that has room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *Partitions) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// change makes a change that plans depend on. The zero value makes no plans.
func (p *Partitions) change(f func()) {
	p.locked(f)
	p.wake()
}

// keep holds a lease while it is due, which is asked under the lock, and calls f under each term.
func (p *Partitions) keep(h *lease.Handle, due func(held bool) bool, f func(ctx context.Context, t lease.Term)) {
	defer func() { _ = h.Close(context.Background()) }()
	for p.await(p.life, func() bool { return due(false) }) == nil {
		ctx, cancel := context.WithCancel(p.life)
		p.wg.Go(func() {
			_ = p.await(ctx, func() bool { return !due(true) })
			cancel()
		})
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			f(ctx, t)
			return nil
		})
		cancel()
		for errors.Is(err, lease.ErrChildHeld) {
			err = h.Release(context.Background())
		}
		if errors.Is(err, lease.ErrClosed) || boundary.Pause(p.life, leastPause) != nil {
			return
		}
	}
}

// takes: this node takes part, which the lease of its host says.
func (p *Partitions) takes(bool) bool { return !p.drained && p.stopping.IsZero() }

func (p *Partitions) takePart(ctx context.Context, _ lease.Term) {
	p.change(func() { p.since = cmp.Or(p.since, time.Now()) })
	<-ctx.Done()
}

// reigns: this node's Count counts; if another does, the last Own here ends first.
func (p *Partitions) reigns(held bool) bool {
	for _, s := range p.slots {
		if held && s.now != nil {
			return true
		}
	}
	return p.newest == p.id || held && p.newest == "" // "" after a reset
}

// reign holds the lease that what this node owns hangs on, while its Count counts. To own a partition is
// safe when this lease stands, and the store has been asked since whether that of any other Count does:
// of two nodes that do so at a time one at least sees the other.
func (p *Partitions) reign(ctx context.Context, t lease.Term) {
	for !p.unopposed(ctx) {
		if boundary.Pause(ctx, looksEvery) != nil {
			return
		}
	}
	p.change(func() { p.cleared = t })
	<-ctx.Done()
	p.change(func() { p.cleared = nil })
	if p.life.Err() != nil { // the Owns that Stop ended go on under their leases
		p.works.Wait()
	}
}

// unopposed asks the store whether no node has another Count.
func (p *Partitions) unopposed(ctx context.Context) bool {
	all, err := p.keeper.List(ctx, p.prefix+kindCounts+"/")
	if err != nil && ctx.Err() == nil {
		p.line.Warn(p.log, time.Since(p.began), "nothing is owned before the store lists the nodes with another Count", zap.Error(err))
	}
	return err == nil && !slices.ContainsFunc(all, func(r lease.Record) bool { return r.Metadata[keyLayout] != p.id })
}

// lawful: what this node acquired hangs on a term of counts that was cleared.
func (p *Partitions) lawful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.strict || p.cleared != nil && p.cleared.CheckAlive()
}

// await waits until a condition, which is asked under the lock, holds.
func (p *Partitions) await(ctx context.Context, holds func() bool) error {
	for {
		p.mu.Lock()
		decided, yes := p.decided, holds()
		p.mu.Unlock()
		if yes {
			return nil
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.life.Done():
			return lease.ErrClosed
		}
	}
}

// hear takes up an event of a record. What it means for its partition follows at once, by the plan that
// there is: thousands of moves would be too many plans.
func (p *Partitions) hear(ev store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.table.hear(ev)
	if s := p.slots[n]; s != nil {
		poke(s.changed)
		p.stepLocked(n)
	}
	if n < 0 || p.own[n].Name == "" {
		p.wake()
	}
	poke(p.later)
}

// decideAll plans whenever something changed.
func (p *Partitions) decideAll() {
	again := time.After(0)
	defer func() { _ = boundary.Contained(func() { p.meters.unowned.Set(0) }) }() // another node tells
	for {
		select {
		case <-p.woken:
		case <-again:
			again = nil
		case <-p.later:
			if again == nil {
				again = time.After(plansAgain)
			}
			continue
		case <-p.life.Done():
			return
		}
		soon, unowned := p.decide()
		if soon {
			again = time.After(plansAgain)
		}
		_ = boundary.Contained(func() { p.meters.unowned.Set(unowned) })
		_ = boundary.Pause(p.life, pace)
	}
}

// decide plans, and has the slots do what follows. It returns whether something may be due though
// nothing changes, and how many partitions no node owns, if this node's layout counts.
func (p *Partitions) decide() (again bool, unowned int64) {
	members := p.group.Members().Members
	p.mu.Lock()
	v, known := p.view(members, p.cfg.Settle), p.synced
	p.mu.Unlock()
	if !known {
		return false, 0
	}
	target := p.place(v)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.target = v, target
	for i := range target {
		if p.own[i].Name == "" && p.newest == p.id {
			unowned++
		}
		p.stepLocked(i)
		if s := p.slots[i]; s != nil && s.lent && (len(p.moving) == 0 || target[i] != p.self) {
			s.lent = false
			p.wg.Go(func() { _ = s.ready.Release(context.Background()) })
		}
	}
	close(p.decided)
	p.decided = make(chan struct{})
	return !p.stopping.IsZero() || time.Since(p.since) < gather || len(v.fresh) > 0 || len(p.moving) > 0, unowned
}

// stepLocked has a partition begun, passed on or given up here, as follows from the plan.
func (p *Partitions) stepLocked(i int) {
	s, to := p.slots[i], p.target[i]
	over := p.beyond(i, p.newest) || p.strict && p.newest != "" && p.newest != p.id
	mine := to == p.self && !over && !(p.strict && p.cleared == nil)
	switch ready := p.ready[i].Owner.Incarnation; {
	case s == nil && mine:
		if p.takes(false) && !p.since.IsZero() && time.Since(p.since) >= gather {
			s = &slot{p: p, n: i, changed: make(chan struct{}, 1)}
			s.ctx, s.cancel = context.WithCancel(p.life)
			p.slots[i] = s
			p.works.Go(func() { _ = boundary.Contained(s.run) })
		}
	case s == nil || mine:
	case s.now == nil || over:
		s.cancel()
	case ready != "" && ready != p.self:
		s.now.passing = true
		s.cancel()
	// No other node will be ready for it. Nodes of another list may not know what is left.
	case !p.stopping.IsZero() && (to == "" || p.newest != p.id && time.Since(p.stopping) >= handsOverIn):
		s.cancel()
	}
}

// place asks the strategy, and takes the default where that fails.
func (p *Partitions) place(v view) []string {
	err := errors.New("it has not answered an earlier question")
	if !p.asking.Swap(true) {
		var target []string
		answers := make(chan error, 1)
		boundary.Aside(func() ([]string, error) { return v.place(p.cfg.Strategy) }, func(answer []string, err error) {
			p.asking.Store(false)
			target = answer
			answers <- err
		})
		select {
		case err = <-answers:
			if err == nil {
				return target
			}
		case <-time.After(answersWithin):
			err = fmt.Errorf("no answer within %v", answersWithin)
		}
	}
	p.line.Warn(p.log, time.Since(p.began), "the strategy failed, partitions are spread evenly", zap.Error(err),
		boundary.Do("mend Config.Strategy"))
	even, _ := v.place(placement.Balanced{})
	return even
}

// standBack has another node run partition n for a while. It returns whether one is to.
func (p *Partitions) standBack(n int) bool {
	p.mu.Lock()
	without := map[string]bool{p.self: true}
	maps.Copy(without, p.sick[n])
	another := p.plan.least(nil, without) != ""
	p.mu.Unlock()
	if !another {
		return false
	}
	sick, err := p.keeper.Lease(p.nameOf(kindSick, n) + "/" + p.self)
	if err != nil {
		return false
	}
	won, err := sick.Acquire(p.life)
	p.wg.Go(func() {
		if won {
			_ = boundary.Pause(p.life, sickFor)
		}
		_ = sick.Close(context.Background())
	})
	p.log.Warn("it failed too often here, another node tries it", zap.String("partition", p.keys[n]), zap.Error(err))
	return won
}

// Owned returns the numbers of the partitions that this node owns, in order.
func (p *Partitions) Owned() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []int
	for n, s := range p.slots {
		if s.now != nil && s.now.term.CheckAlive() {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// Owner returns who owns partition n, as far as the store was heard; ok is false if no node does, or
// it is not known. It is a hint: by the time it is read it may be another.
func (p *Partitions) Owner(n int) (o lease.Owner, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 || n >= len(p.keys) || p.own[n].Owner.ID == "" {
		return o, false
	}
	return p.own[n].Owner, true
}

// Done is closed when Stop has ended all; nil for the zero value.
func (p *Partitions) Done() <-chan struct{} { return p.closed }

// Wait waits until every partition is owned, by the node that it should be at, as far as this node
// knows. It does not return while this node takes none: while it is drained, or others' Count or Keys
// count. Errors: the context's; lease.ErrClosed after Stop.
func (p *Partitions) Wait(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	return about(p.cfg.Name, p.await(ctx, p.settledLocked))
}

func (p *Partitions) settledLocked() bool {
	if fresh := len(p.plan.fresh); fresh > 0 && fresh < len(p.plan.Hosts) { // some may move yet
		return false
	}
	for i, to := range p.target {
		s := p.slots[i]
		if to == "" || p.own[i].Owner.Incarnation != to || to == p.self && (s == nil || s.now == nil) {
			return false
		}
	}
	return slices.ContainsFunc(p.plan.Hosts, func(h placement.Host) bool { return h.Incarnation == p.self })
}

// Health is a check as health.Handler takes it. It fails, naming the partition, while an Own has not
// returned 10 s after it should have; until the records of the partitions are known, and this node takes
// part; and after Stop. It asks nothing of the store.
func (p *Partitions) Health(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch {
	case p.life.Err() != nil:
		err = lease.ErrClosed
	case !p.synced || p.since.IsZero():
		err = errors.New("this node does not take part yet")
	}
	for n, s := range p.slots {
		if t := s.now; t != nil && !t.ending.IsZero() && time.Since(t.ending) > stopsWithin {
			err = fmt.Errorf("partition %s: Own has not returned, %v after its context was done", p.keys[n], time.Since(t.ending).Round(time.Second))
		}
	}
	return about(p.cfg.Name, err)
}

// Drain passes what this node owns to others, as these are ready, and has it take nothing until Undrain.
// It returns when it owns nothing; partitions that no other node takes stay here, and the error says how
// many. So it does when Undrain is called. When ctx ends before, the error has its cause, and the node
// goes on draining.
func (p *Partitions) Drain(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.change(func() { p.drained = true })
	left, why := 0, ""
	err := p.await(ctx, func() bool {
		if left, why = len(p.slots), "no other node takes them"; !p.drained {
			why = "Undrain was called"
			return true
		}
		return left == 0 || p.synced && p.plan.least(nil, map[string]bool{p.self: true}) == ""
	})
	if err == nil && left > 0 {
		err = fmt.Errorf("%s: %d stay here", why, left)
	}
	return about(p.cfg.Name, err)
}

// Undrain ends what Drain began.
func (p *Partitions) Undrain() {
	p.change(func() { p.drained = false })
}

// Stop ends this node's part in order: it gets no further partition, and those that it owns are passed
// to other nodes as these are ready, or given up if there is none. When ctx is done before that, all
// is given up as soon as Own returns, and the error says how many are left; what Own does not end
// stays this node's. Call it before the group is left and the Keeper closed. Further calls wait for
// the same.
func (p *Partitions) Stop(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.change(func() { p.stopping = cmp.Or(p.stopping, time.Now()) })
	_ = p.await(ctx, func() bool { return len(p.slots) == 0 })
	p.end()
	select {
	case <-p.closed:
		return nil
	case <-ctx.Done():
	}
	left := 0
	p.locked(func() { left = len(p.slots) })
	return about(p.cfg.Name, fmt.Errorf("%w: %d are not given up yet", context.Cause(ctx), left))
}
