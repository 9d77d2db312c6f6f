package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

// Cases about the records of one session (lease.SessionLister).
var listedCases = []testCase{
	{name: "listed/own", needs: needSessionList, run: listedOwn},
	{name: "listed/after-every-write", needs: needSessionList, run: func(t *T) {
		n, other := t.node(), t.node()
		for i := range 30 {
			r := n.win(fmt.Sprintf("a/%d", i%3))
			other.lists(n, r)
			r = n.winClaim(t.supersede(r), ruleSupersede)
			other.lists(n, r)
			n.freed(r)
			other.lists(n)
		}
	}},
	{name: "listed/transferred", needs: needSessionList | needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		stays := a.win("stays")
		given := a.give(a.win("goes"), b)
		a.lists(a, stays)
		a.lists(b, given)
		back := b.give(given, a)
		b.lists(a, stays, back)
		b.lists(b)
	}},
	{name: "listed/superseded-elsewhere", needs: needSessionList, run: func(t *T) {
		a := t.node()
		again := a.again()
		r := a.win("a")
		b := a.win("b")
		r = again.winClaim(t.supersede(r), ruleSupersede)
		a.lists(a, b)
		a.lists(again, r)
	}},
	{name: "listed/gone", needs: needSessionList, run: func(t *T) {
		n, other := t.node(), t.node()
		n.win("a")
		r := other.win("b")
		n.close()
		n.listsGone(n)
		other.listsGone(n)
		other.lists(other, r)
		unknown := &node{t: t, store: n.store, session: t.newSession(n.session.Owner, t.ttl)}
		n.listsGone(unknown)
	}},
	{name: "listed/expired", needs: needSessionList, waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		n.win("a")
		r := other.win("b")
		n.letExpire(other, "a")
		gone := t.eventually(func() bool {
			_, err := other.listSession(n)
			return errors.Is(err, lease.ErrSessionGone)
		})
		t.inTime(gone, ruleListedGone, "its record is gone, and the session is not")
		other.lists(other, r)
	}},
	{name: "listed/many", needs: needSessionList, run: listedMany},
	{name: "listed/among-changes", needs: needSessionList, run: listedChanging},
}

// listSession lists the records of of's session through the node's client.
func (n *node) listSession(of *node) (map[string]lease.Record, error) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	found := map[string]lease.Record{}
	for r, err := range n.store.(lease.SessionLister).ListSession(ctx, of.session) {
		if err != nil {
			return found, err
		}
		_, twice := found[r.Name]
		n.t.check(!twice, ruleListed, "%q came twice", r.Name)
		found[r.Name] = r
	}
	return found, nil
}

// listsSessions tells whether the node's store can.
func (n *node) listsSessions() bool {
	if _, ok := n.store.(lease.SessionLister); !ok {
		return false
	}
	_, err := n.listSession(n)
	return !errors.Is(err, lease.ErrUnsupported)
}

// lists requires that exactly want stand under of's session. It is fatal.
func (n *node) lists(of *node, want ...lease.Record) {
	n.t.Helper()
	found, err := n.listSession(of)
	if err != nil {
		n.t.Fatalf("ListSession: %v", err)
	}
	for _, r := range want {
		got, ok := found[r.Name]
		n.t.require(ok, ruleListed, "%q stands under the session and is not listed: %+v", r.Name, found)
		n.t.sameRecord(got, r, ruleListed)
	}
	n.t.require(len(found) == len(want), ruleListed, "%d records stand under the session, listed were %+v", len(want), found)
}

// listsGone requires that of's session is said to be gone.
func (n *node) listsGone(of *node) {
	n.t.Helper()
	found, err := n.listSession(of)
	n.t.check(errors.Is(err, lease.ErrSessionGone) && len(found) == 0, ruleListedGone, "ListSession: %+v, error %v", found, err)
}

func listedOwn(t *T) {
	a, b := t.node(), t.node()
	again := a.again() // of the same owner
	empty := t.node()
	var ofA, ofAgain, ofB []lease.Record
	for i := range 5 {
		c := t.claim(fmt.Sprintf("listed/a/%d", i))
		c.Metadata = map[string]string{"i": fmt.Sprint(i)}
		ofA = append(ofA, a.winClaim(c, ruleFree))
		ofAgain = append(ofAgain, again.win(fmt.Sprintf("listed/again/%d", i)))
		ofB = append(ofB, b.win(fmt.Sprintf("listed/a/%d/b", i)))
	}
	for _, from := range []*node{a, b} {
		from.lists(a, ofA...)
		from.lists(again, ofAgain...)
		from.lists(b, ofB...)
		from.lists(empty)
	}
	done, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	failed := false
	for _, err := range a.store.(lease.SessionLister).ListSession(done, a.session) {
		failed = err != nil
	}
	t.check(failed, ruleWholeListing, "ListSession with a context that is done ended without an error")
	for range a.store.(lease.SessionLister).ListSession(t.Context(), a.session) {
		break
	}
	a.lists(a, ofA...)
}

// listedMany lists more than a request of any store carries.
func listedMany(t *T) {
	n, other := t.node(), t.node()
	const size = 1000
	var held []lease.Record
	for _, x := range []*node{n, other} {
		for i := 0; i < size; {
			claims := make([]lease.Claim, t.batch(n.store, size-i))
			for j := range claims {
				claims[j] = t.claim(fmt.Sprintf("m/%d/%s", i+j, x.session.Owner.ID))
			}
			i += len(claims)
			for j, out := range x.acquire(claims...) {
				t.require(out.OK, ruleBatchAll, "claim %d of %d was refused: %+v", j, len(claims), out)
				if x == n {
					held = append(held, out.Record)
				}
			}
		}
	}
	other.lists(n, held...)
}

// listedChanging lists while other names of the session come and go.
func listedChanging(t *T) {
	n := t.node()
	names := n.many(30)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 30 {
				out, err := n.tryCtx(fmt.Sprintf("many/%d/x/%d", j, i))
				if err != nil {
					return
				}
				t.pace()
				ctx, cancel := t.context()
				_, err = t.releaseCtx(ctx, n.store, out.Record.Held())
				cancel()
				if err != nil {
					t.Errorf("Release: %v", err)
					return
				}
			}
		})
	}
	for range 20 {
		found, err := n.listSession(n)
		if err != nil {
			t.Errorf("ListSession: %v", err)
			break
		}
		for _, name := range names {
			_, ok := found[name]
			t.check(ok, ruleListed, "%q, held all the while, was not listed", name)
		}
		t.pace()
	}
	wg.Wait()
}
