package singleton

import (
	"fmt"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
)

// scene is what stands around a machine: it carries effects out as the manager
// does, and knows what may happen next.
type scene struct {
	m         machine
	acquiring bool
	held      bool // the store says it is ours
	alive     bool // and the term lives
	child     bool
	stopping  bool // the child was told to stop
	spawning  bool
	hung      bool // what was to make a child that was given up has not returned
	waiting   bool
	backoff   bool
	rest      bool // the child failed here, and its pause is not over
	releasing bool
	finished  bool

	inviting     bool // somebody is being asked
	again        bool // for a new offer: once
	overdue      bool // the deadline of a child is still to come
	yield        bool // a TTL is being waited for
	yielded      bool // the lease was given up under the child
	transferring bool
	offering     bool
	offered      bool // our offer is open
	adopting     bool
	asking       bool // somebody waits for our answer
}

// apply feeds one event and carries the effects out; err names a broken rule.
func (w scene) apply(e event) (scene, error) {
	var effects []effect
	w.m, effects = w.m.next(e)
	for _, f := range effects {
		switch f {
		case handover.DoAcquire:
			if w.acquiring || w.adopting || w.held || w.child || w.releasing || w.hung || w.m.drained {
				return w, fmt.Errorf("acquires while %+v", w)
			}
			w.acquiring = true
		case cancelAcquire:
			if !w.acquiring && !w.adopting {
				return w, fmt.Errorf("cancels no acquire")
			}
		case waitFree, retryLater:
			w.waiting = true
		case stopWaiting:
			w.waiting = false
		case handover.DoOpen:
			if w.child || !w.held || w.spawning || w.hung {
				return w, fmt.Errorf("spawns while %+v", w)
			}
			w.spawning = true
		case hurrySpawn:
			if !w.spawning {
				return w, fmt.Errorf("hurries nothing: %+v", w)
			}
		case dropSpawn: // it may have begun
			if !w.spawning {
				return w, fmt.Errorf("gives no child up: %+v", w)
			}
			w.spawning, w.hung, w.child, w.stopping = false, true, true, true
		case handover.DoDrain, handover.DoLose:
			if !w.child {
				return w, fmt.Errorf("stops no child: %+v", w)
			}
			w.stopping, w.overdue = true, w.alive
		case handover.ForceStop:
			if !w.child || !w.stopping {
				return w, fmt.Errorf("shuts off a child that was not told to stop: %+v", w)
			}
			w.overdue = false
		case handover.StartYield:
			w.yield = true
		case handover.DoYield:
			if !w.child || w.yield {
				return w, fmt.Errorf("yields without a wait: %+v", w)
			}
			w.yielded, w.alive, w.held = true, false, false
		case startRest:
			w.rest = true
		case handover.DoInvite: // for a child, or for one that fails
			if w.child == (w.m.phase == Asking) || w.inviting || w.spawning || w.backoff || w.m.resting {
				return w, fmt.Errorf("invites while %+v", w)
			}
			w.inviting = true
		case handover.AskAgain:
			if w.child || w.inviting || w.again {
				return w, fmt.Errorf("asks again while %+v", w)
			}
			w.inviting, w.again = true, true
		case handover.DropInvite:
			w.inviting = false
		case askLater:
		case handover.DoTransfer:
			if w.child || w.spawning || w.releasing || !w.m.hold.Offer {
				return w, fmt.Errorf("transfers while %+v", w)
			}
			w.transferring, w.alive = true, false
		case handover.DoOffer:
			if w.held || w.child || w.offering || w.acquiring || w.hung || w.m.drained {
				return w, fmt.Errorf("offers while %+v", w)
			}
			w.offering = true
		case handover.SendOffer:
			if !w.asking {
				return w, fmt.Errorf("answers nobody: %+v", w)
			}
			w.asking, w.offered = false, true
		case handover.SendDecline:
			w.asking = false
		case handover.DoAdopt:
			if w.adopting || w.acquiring || w.held || w.child {
				return w, fmt.Errorf("adopts while %+v", w)
			}
			w.adopting, w.offered = true, false
		case startBackoff:
			w.backoff = true
		case cancelBackoff:
			w.backoff = false
		case handover.DoRelease:
			if w.child || w.spawning || w.releasing || w.transferring {
				return w, fmt.Errorf("releases while %+v", w)
			}
			w.releasing, w.alive = true, false
		case finish:
			if w.held || w.child || w.acquiring || w.adopting || w.releasing || w.transferring {
				return w, fmt.Errorf("finishes while %+v", w)
			}
			w.finished = true
		}
	}
	return w, nil
}

// step is one thing that can happen in w.
type step struct {
	name string
	e    event
	do   func(*scene)
}

func (w scene) steps() []step {
	steps := []step{{"wanted", wanted, nil}, {"unwanted", unwanted, nil}, {"stop", stop, nil},
		{"preferredElsewhere", preferredElsewhere, nil}, {"drain", drain, nil}, {"undrain", undrain, nil}}
	if w.m.phase == Standby { // elsewhere the manager itself says no
		steps = append(steps, step{"asked", handover.Asked, func(w *scene) { w.asking = true }})
	}
	if w.hung { // it may do so at any time, or never
		steps = append(steps, step{"what hung returns", unstuck, func(w *scene) { w.hung = false }})
	}
	if w.offered { // who invited may come to its end at any time
		steps = append(steps, step{"taken", handover.Taken, nil})
	}
	if w.backoff && w.m.willing() {
		steps = append(steps, step{"hopeless", hopeless, nil}, step{"resign", resign, nil})
	}
	return append(steps, w.progress()...)
}

// progress is what comes about by itself, without anybody's wish.
func (w scene) progress() (steps []step) {
	add := func(ok bool, name string, e event, do func(*scene)) {
		if ok {
			steps = append(steps, step{name, e, do})
		}
	}
	add(w.spawning && w.alive, "spawned", handover.Opened, func(w *scene) { w.spawning, w.child = false, true })
	add(w.spawning && w.alive, "spawn failed", spawnFailed, func(w *scene) { w.spawning = false })
	add(w.spawning && w.alive, "not made in time", unmade, nil)
	add(w.spawning && !w.alive, "lost before spawn", handover.Lost, nil)
	add(w.waiting, "free", free, nil)
	add(w.acquiring, "won", handover.Won, func(w *scene) { w.acquiring, w.held, w.alive = false, true, true })
	add(w.acquiring, "won, and lost", handover.Won, func(w *scene) { w.acquiring, w.held = false, true })
	add(w.acquiring, "not won", handover.NotWon, func(w *scene) { w.acquiring = false })
	add(w.acquiring, "failed", failed, func(w *scene) { w.acquiring = false })
	add(w.alive && !w.releasing && !w.transferring, "lost", handover.Lost, func(w *scene) { w.alive = false })
	ended := func(w *scene) {
		w.child, w.stopping, w.overdue, w.yield, w.yielded = false, false, false, false, false
	}
	add(w.child, "child ended", handover.Ended, ended)
	add(w.overdue && w.child, "overdue", handover.Overdue, func(w *scene) { w.overdue = false })
	add(w.yield && w.child, "yield over", handover.YieldOver, func(w *scene) { w.yield = false })
	add(w.inviting, "invited", handover.Invited, func(w *scene) { w.inviting = false })
	add(w.inviting, "declined", handover.Declined, func(w *scene) { w.inviting = false })
	add(w.inviting && !w.again, "unreachable", unreachable, func(w *scene) { w.inviting = false })
	add(w.transferring, "transferred", handover.Transferred, func(w *scene) { w.transferring, w.held, w.again = false, false, false })
	add(w.transferring && !w.again, "the offer is too old", handover.Stale, func(w *scene) { w.transferring = false })
	add(w.transferring, "not transferred", handover.NotTransferred, func(w *scene) { w.transferring = false })
	add(w.offering, "offer made", handover.OfferMade, func(w *scene) { w.offering = false })
	add(w.offering, "offer failed", handover.OfferFailed, func(w *scene) { w.offering = false })
	add(w.offered, "offer over", handover.OfferOver, func(w *scene) { w.offered = false })
	add(w.adopting, "adopted", handover.Won, func(w *scene) { w.adopting, w.held, w.alive = false, true, true })
	add(w.adopting, "not adopted", handover.NotWon, func(w *scene) { w.adopting = false })
	add(w.adopting, "adoption failed", failed, func(w *scene) { w.adopting = false })
	add(w.backoff, "backoff over", backoffOver, func(w *scene) { w.backoff = false })
	add(w.rest, "rested", rested, func(w *scene) { w.rest = false })
	add(w.releasing, "released", handover.Released, func(w *scene) { w.releasing, w.held, w.alive, w.again = false, false, false, false })
	return steps
}

// TestMachineExhaustively visits every state that any sequence of events can
// lead to, and checks the rules on each transition.
func TestMachineExhaustively(t *testing.T) {
	for _, setting := range []machine{{}, {hold: handover.Machine{Yields: true}}} {
		start := scene{m: setting}
		seen := map[scene]bool{start: true}
		paths := map[scene]string{start: ""}
		queue := []scene{start}
		phases := map[Phase]bool{}
		for len(queue) > 0 {
			w := queue[0]
			queue = queue[1:]
			phases[w.m.phase] = true
			for _, s := range w.steps() {
				next := w
				if s.do != nil {
					s.do(&next)
				}
				next, err := next.apply(s.e)
				require.NoError(t, err, "after %s → %s", paths[w], s.name)
				require.NoError(t, consistent(next), "after %s → %s: %+v", paths[w], s.name, next)
				if !seen[next] {
					seen[next] = true
					paths[next] = paths[w] + " → " + s.name
					queue = append(queue, next)
				}
			}
		}
		for p := Standby; p <= Asking; p++ {
			require.Equal(t, p != Yielding || setting.hold.Yields, phases[p], "%v reached", p)
		}
		t.Logf("%+v: %d states", setting, len(seen))

		// From every state a stop leads to the end, if the world goes on.
		for w := range seen {
			if !w.finished {
				next, err := w.apply(stop)
				require.NoError(t, err)
				require.True(t, ends(next, map[scene]bool{}), "no end after stop in %+v (%s)", w, paths[w])
			}
		}
		// And a manager that is wanted always has something to wait for.
		for w := range seen {
			if w.m.wanted && !w.m.stuck && !w.m.drained && !w.finished {
				require.NotEmpty(t, w.progress(), "stuck in %+v (%s)", w, paths[w])
			}
		}
	}
}

// consistent says what a phase means.
func consistent(w scene) error {
	p := w.m.phase
	withChild := p == Active || p == Inviting || p == HandingOver || p == Yielding || p == Stopping
	for _, rule := range []struct {
		what string
		ok   bool
	}{
		{"a child in the phases that have one, and only there", w.child == withChild},
		{"no child without the lease, unless it was yielded", !w.child || w.held || w.yielded},
		{"transfers in Transferring only", w.transferring == (p == Transferring)},
		{"an offer is open in Offered only", w.offered == (p == Offered)},
		{"somebody is asked in Inviting and Asking only", w.inviting == (p == Inviting || p == Asking)},
		{"a child whose lease is lost was told to stop", !w.child || w.alive || w.stopping},
		{"a child that is not to be here was told to stop", !w.child || w.m.wanted && !w.m.closing() || w.stopping || w.inviting || p == Active},
		{"the lease is given up in Releasing only", w.releasing == (p == Releasing)},
		{"a backoff runs in Backoff only", w.backoff == (p == Backoff)},
		{"nothing is held in Standby", p != Standby || !w.held},
		{"a child is being made in Starting only", w.spawning == (p == Starting)},
		{"what was to make a child that was given up, and has not returned, is known", w.m.stuck == w.hung},
		{"a node whose child failed rests", w.m.resting == w.rest},
		{"closed is finished", w.finished == (p == Closed)},
	} {
		if !rule.ok {
			return fmt.Errorf("broken: %s", rule.what)
		}
	}
	return nil
}

// ends reports whether every way on from w leads to the end.
func ends(w scene, path map[scene]bool) bool {
	if w.finished {
		return true
	}
	if path[w] {
		return false
	}
	path[w] = true
	defer delete(path, w)
	steps := w.progress()
	for _, s := range steps {
		next := w
		if s.do != nil {
			s.do(&next)
		}
		next, err := next.apply(s.e)
		if err != nil || !ends(next, path) {
			return false
		}
	}
	return len(steps) > 0
}

// stopper is a supervisor that can only stop.
type stopper struct {
	actor.Supervisor
	system *actor.ActorSystem
}

func (s stopper) StopChildren(pids ...*actor.PID) {
	for _, pid := range pids {
		s.system.Root.Stop(pid)
	}
}

func TestAFailureOfAChildThatHasEnded(t *testing.T) {
	system := actor.NewActorSystem()
	defer system.Shutdown()
	system.EventStream.Subscribe(func(any) { panic("a subscriber's bug") })
	var told any
	stopFailing(func(reason any) { told = reason }).HandleFailure(system, stopper{system: system}, system.NewLocalPID("ended"), nil, "why", nil)
	require.Equal(t, "why", told)
}
