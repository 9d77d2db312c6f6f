package leasetest

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/lease"
)

// Handles of sessions: what a store grants one under comes back with every call, and in
// offers; every case of the kit gives it back.
var handleCases = []testCase{
	{name: "handles/granted", run: func(t *T) {
		n := t.node()
		r := n.win("h/a")
		with := n.session.Handle
		n.reopen()
		n.session.Handle = ""
		n.reopen() // as after an answer that was lost
		t.check(n.session.Handle == with, ruleHandle, "opened again it is %+q, not %+q", n.session.Handle, with)
		n.renew()
		n.stands(r, ruleHandle)
		n.freed(r)
		n.close()
	}},
	{name: "handles/foreign", run: foreignHandles},
	{name: "handles/foreign-offer", needs: needTransfer, run: foreignOffers},
}

// granted checks a handle. It is fatal.
func (n *node) granted(g lease.Grant) {
	n.t.Helper()
	n.t.require(len(g.Handle) <= lease.MaxHandle && utf8.ValidString(g.Handle), ruleHandle, "%d bytes, %+.64q", len(g.Handle), g.Handle)
	n.session.Handle = g.Handle
}

// foreign are handles that are not the node's session's.
func (n *node) foreign(another *node) (handles []string) {
	for _, h := range []string{
		another.session.Handle, "another-store/17", n.session.Handle + "x", strings.ToUpper(n.session.Handle), " " + n.session.Handle,
		n.session.Handle[:len(n.session.Handle)/2], strings.Repeat("h", lease.MaxHandle), strings.Repeat("h", lease.MaxHandle+1), "\xff",
	} {
		if h != n.session.Handle && h != "" {
			handles = append(handles, h)
		}
	}
	return handles
}

// refusal tells whether an error is a definite word on a handle.
func refusal(err error) bool {
	return errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrSessionGone)
}

func foreignHandles(t *T) {
	n := t.node()
	another := t.nodeOn(n.store)
	r := n.win("h/a")
	for _, h := range n.foreign(another) {
		bad := *n
		bad.session.Handle = h
		ctx, cancel := t.context()
		_, err := bad.acquireCtx(ctx, t.claim("h/b"))
		t.check(refusal(err), ruleForeign, "Acquire with %+.64q: error %v", h, err)
		grants, err := n.store.Renew(ctx, []lease.Session{another.session, bad.session})
		if t.batch(n.store, 2) < 2 || err != nil || len(grants) != 2 {
			t.check(err == nil && len(grants) == 2, ruleForeign, "Renew with %+.64q beside another: %d grants, error %v", h, len(grants), err)
		} else {
			t.check(grants[0].Err == nil && refusal(grants[1].Err), ruleForeign, "Renew with %+.64q beside another: %+v", h, grants)
		}
		g, err := n.store.OpenSession(ctx, bad.session)
		t.check(refusal(errors.Join(err, g.Err)), ruleForeign, "OpenSession with %+.64q: %+v, error %v", h, g, err)
		err = n.store.CloseSession(ctx, bad.session)
		cancel()
		t.check(err == nil || refusal(err), ruleForeign, "CloseSession with %+.64q: %v", h, err)
		n.free("h/b", ruleForeign)
		n.stands(r, ruleForeign)
	}
	t.check(n.renew().Err == nil, ruleForeign, "then it is gone")
	n.freed(r)
}

func foreignOffers(t *T) {
	a, b := t.node(), t.node()
	r := a.win("h/a")
	for _, h := range b.foreign(a) {
		o := b.offer(r.Name)
		o.Handle = h
		out := a.transfer(lease.Transfer{Held: r.Held(), To: o})[0]
		t.require(!out.OK && refusal(out.Err), ruleForeign, "Transfer to a session with %+.64q: %+v", h, out)
		b.stands(r, ruleForeign)
	}
	a.give(r, b)
}
