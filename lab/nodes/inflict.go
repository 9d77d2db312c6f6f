//go:build linux

package nodes

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
)

// inflict does a fault, and undoes it. An error means that this process could not.
func (t *torture) inflict(ctx context.Context, n int, f fault, calm bool) (err error) {
	if f.Kind == killNode || f.Kind == pauseNode || f.Kind.planned() {
		s := t.slots[f.Node]
		s.op.Lock()
		defer s.op.Unlock()
	}
	if f.Kind.ofStore() {
		t.storeOp.Lock()
		defer t.storeOp.Unlock()
	}
	d := done{fault: f, round: n, calm: calm, from: machine.Now()}
	if !f.Kind.ofStore() {
		t.say("%v", f)
	}
	defer func() {
		d.to = machine.Now()
		t.mu.Lock()
		t.done = append(t.done, d)
		t.mu.Unlock()
	}()
	switch f.Kind {
	default:
		return t.troubleStore(ctx, f)
	case killNode:
		if err := t.kill(t.slots[f.Node]); err != nil {
			t.evil(ruleProcess, err)
		}
		err := machine.Pause(ctx, f.For)
		return errors.Join(err, t.start(f.Node))
	case pauseNode:
		return t.pauseNode(ctx, f)
	case cutStore, cutRequests, cutReplies:
		if err := t.net.store(f.Node, f.Kind == cutReplies, f.Kind == cutRequests); err != nil {
			return err
		}
		err := machine.Pause(ctx, f.For)
		return errors.Join(err, t.net.store(f.Node, true, true))
	case cutPair, cutOneWay:
		err := t.net.link(f.Node, f.Other, false)
		if f.Kind == cutPair {
			err = errors.Join(err, t.net.link(f.Other, f.Node, false))
		}
		if err == nil {
			err = machine.Pause(ctx, f.For)
		}
		return errors.Join(err, t.net.link(f.Node, f.Other, true), t.net.link(f.Other, f.Node, true))
	case delayLink, throttleLink, stallLink:
		err := t.net.shape(f.Node, f.Other, f.Shape)
		if err == nil {
			err = machine.Pause(ctx, f.For)
		}
		return errors.Join(err, t.net.shape(f.Node, f.Other, machine.Shape{}))
	case slowStore:
		err := t.net.shapeStore(f.Node, f.Shape)
		if err == nil {
			err = machine.Pause(ctx, f.For)
		}
		return errors.Join(err, t.net.shapeStore(f.Node, machine.Shape{}))
	case starve:
		return t.starve(ctx, f.For)
	case restartNode:
		t.leave(f.Node, calm)
		if err := t.start(f.Node); err != nil || !calm {
			return err
		}
		if _, err := t.awaitUp(ctx, f.Node); err != nil {
			t.evil(ruleDeparted, err)
		}
		return ctx.Err()
	case joinAndLeave:
		if err := t.start(f.Node); err != nil {
			return err
		}
		if calm {
			if _, err := t.awaitUp(ctx, f.Node); err != nil {
				t.evil(ruleDeparted, err)
			}
		}
		err := machine.Pause(ctx, f.For)
		t.leave(f.Node, calm)
		return err
	}
}

// leave has a node leave; in calm it must.
func (t *torture) leave(i int, calm bool) {
	err := t.leaveBy(t.slots[i], leaveBound)
	switch {
	case err != nil && calm:
		t.evil(ruleDeparted, err)
	case err != nil:
		t.say("node-%d, told to leave in a storm: %v", i, err)
		t.mu.Lock()
		t.slowGone++
		t.mu.Unlock()
	}
}

func (t *torture) pauseNode(ctx context.Context, f fault) error {
	p := t.slots[f.Node].current()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.evil(ruleProcess, err)
		return nil
	}
	err := machine.Pause(ctx, f.For)
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}

// troubleStore does what the store's kit can.
func (t *torture) troubleStore(ctx context.Context, f fault) error {
	what, undo, err := t.troubles[f.Kind-faultKinds].Do(ctx, f.Pick)
	if what != "" {
		what = ": " + what
	}
	t.say("%v%s, for %v", f.Name, what, f.For)
	if err != nil {
		return err
	}
	err = machine.Pause(ctx, f.For)
	return errors.Join(err, undo(ctx))
}

// starve keeps the processors busy, with twice as many processes.
func (t *torture) starve(ctx context.Context, d time.Duration) error {
	end, err := machine.Burners(t.burners, 2*runtime.NumCPU())
	if err != nil {
		return err
	}
	err = machine.Pause(ctx, d)
	return errors.Join(err, end())
}
