package leasetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// prompt is what "promptly" means of a call whose context is done.
const prompt = 2 * time.Second

var contextCases = []testCase{
	{name: "context/cancelled", run: func(t *T) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		contextDone(t, ctx)
	}},
	{name: "context/deadline-passed", run: func(t *T) {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(t.Context()), time.Now().Add(-time.Second))
		defer cancel()
		contextDone(t, ctx)
	}},
	{name: "context/cancelled-in-a-list", needs: needList, run: func(t *T) {
		n := t.node()
		names := n.many(200)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		seen, failed := 0, false
		for _, err := range n.store.List(ctx, "many/") {
			if failed = err != nil; failed {
				break
			}
			seen++
			cancel()
		}
		t.check(failed || seen == len(names), ruleWholeListing, "cancelled after the first record, List ended after %d of %d without an error", seen, len(names))
	}},
	{name: "context/short-deadlines", run: contextShort},
	{name: "context/unreachable", needs: needUnreachable, run: contextUnreachable},
}

// storeCall is one method of a store, called somehow; it returns whether the
// answer said anything definite about a name or session.
type storeCall struct {
	name string
	do   func(context.Context) (definite bool, err error)
}

// said is how a call came back.
type said struct {
	definite bool
	err      error
}

// within makes the call and waits for it, but not for ever; ok is false if it
// has not come back at the limit. The case's end waits for it a while longer.
func (t *T) within(ctx context.Context, c storeCall, limit time.Duration) (s said, ok bool) {
	back := make(chan said, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		definite, err := c.do(ctx)
		back <- said{definite, err}
	}()
	t.Cleanup(func() {
		select {
		case <-ended:
		case <-time.After(callBound):
		}
	})
	select {
	case s = <-back:
		return s, true
	case <-time.After(limit):
		return s, false
	}
}

// calls are all calls of a store, about what the node owns as r and what it does
// not own: "free".
func (n *node) calls(r lease.Record, to *node) []storeCall {
	outcome := func(outs []lease.Outcome, err error) (bool, error) { return len(outs) > 0 && err == nil, err }
	all := []storeCall{
		{"OpenSession", func(ctx context.Context) (bool, error) {
			g, err := n.store.OpenSession(ctx, n.t.newSession(n.t.owner(), n.session.TTL))
			return errors.Is(g.Err, lease.ErrSessionGone), errors.Join(err, g.Err)
		}},
		{"CloseSession", func(ctx context.Context) (bool, error) { return false, n.store.CloseSession(ctx, n.session) }},
		{"Acquire", func(ctx context.Context) (bool, error) {
			return outcome(n.store.Acquire(ctx, n.session, []lease.Claim{n.t.claim("free")}))
		}},
		{"Acquire (superseding)", func(ctx context.Context) (bool, error) {
			return outcome(n.store.Acquire(ctx, n.session, []lease.Claim{n.t.supersede(r)}))
		}},
		{"Renew", func(ctx context.Context) (bool, error) {
			gs, err := n.store.Renew(ctx, []lease.Session{n.session})
			for _, g := range gs { // a failure may be told call by call or grant by grant
				err = errors.Join(err, g.Err)
			}
			return errors.Is(err, lease.ErrSessionGone), err
		}},
		{"Release", func(ctx context.Context) (bool, error) { return outcome(n.store.Release(ctx, []lease.Held{r.Held()})) }},
		{"Get", func(ctx context.Context) (bool, error) {
			rs, err := n.store.Get(ctx, r.Name)
			return len(rs) > 0 && err == nil, err
		}},
	}
	if tr, ok := n.store.(lease.TransferStore); ok && to != nil {
		all = append(all, storeCall{"Transfer", func(ctx context.Context) (bool, error) {
			outs, err := tr.Transfer(ctx, []lease.Transfer{{Held: r.Held(), To: to.offer(r.Name)}})
			if err == nil && len(outs) == 1 && outs[0].Err != nil {
				err = outs[0].Err
			}
			return outcome(outs, err)
		}})
	}
	if l, ok := n.store.(lease.SessionLister); ok {
		all = append(all, storeCall{"ListSession", func(ctx context.Context) (bool, error) {
			for _, err := range l.ListSession(ctx, n.session) {
				return err == nil || errors.Is(err, lease.ErrSessionGone), err
			}
			return false, nil
		}})
	}
	return append(all, storeCall{"List", func(ctx context.Context) (bool, error) {
		for _, err := range n.store.List(ctx, "") {
			return err == nil, err
		}
		return false, nil
	}})
}

func contextDone(t *T, done context.Context) {
	n, b := t.node(), t.node()
	r := n.win("a")
	for _, c := range n.calls(r, b) {
		got, ok := t.within(done, c, prompt)
		if !ok {
			t.broken(ruleContextDone, "%s has not returned after %v", c.name, prompt)
			continue
		}
		t.check(got.err != nil, ruleContextDone, "%s succeeded", c.name)
		t.check(!got.definite && !errors.Is(got.err, lease.ErrSessionGone), ruleContextDone, "%s gave a definite answer, error %v", c.name, got.err)
	}
	if _, ok := n.store.(lease.Watcher); ok {
		w := t.watchWith(done, n.store, "", 0)
		select {
		case <-w.done:
		case <-time.After(prompt):
			t.broken(ruleContextDone, "Watch goes on %v later", prompt)
		}
	}
	time.Sleep(10 * t.tick()) // for what was sent all the same
	n.stands(r, ruleContextDone)
	n.free("free", ruleContextDone)
	n.freed(r)
}

// contextShort makes calls with hardly any time. Each gets its answer or an
// error, soon; a refusal of a name that nobody has is a lie.
func contextShort(t *T) {
	n := t.node()
	for i := range 60 {
		name := fmt.Sprintf("short/%d", i)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Duration(i*i)*time.Microsecond)
		began := time.Now()
		outs, err := n.acquireCtx(ctx, t.claim(name))
		cancel()
		took := time.Since(began)
		t.check(took < prompt, ruleDeadline, "Acquire with a deadline of %v took %v", time.Duration(i*i)*time.Microsecond, took)
		switch {
		case err != nil:
			t.check(!errors.Is(err, lease.ErrSessionGone), ruleUnknown, "Acquire under a live session: %v", err)
		case outs[0].Err != nil:
			t.broken(ruleUnknown, "Acquire of a free name with too little time: Outcome.Err %v", outs[0].Err)
		case !outs[0].OK:
			t.broken(ruleUnknown, "Acquire of a free name with too little time was refused by %+v", outs[0].Record)
		default:
			n.stands(outs[0].Record, ruleSeenByAll)
		}
	}
}

func contextUnreachable(t *T) {
	s := t.opts.unreachable(t)()
	owner := t.owner()
	n := &node{t: t, store: s, session: t.newSession(owner, max(t.ttl, time.Second))}
	r := lease.Record{Name: "a", Owner: owner, Session: n.session.ID, Token: 1, Nonce: 1}
	const patience = 100 * time.Millisecond
	for _, c := range n.calls(r, n) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		got, ok := t.within(ctx, c, patience+prompt)
		cancel()
		if !ok {
			t.broken(ruleDeadline, "%s with a deadline of %v has not returned %v after it", c.name, patience, prompt)
			continue
		}
		if errors.Is(got.err, lease.ErrUnsupported) {
			continue
		}
		t.check(got.err != nil && !got.definite, ruleUnknown, "%s: definite answer %v, error %v", c.name, got.definite, got.err)
		t.check(!errors.Is(got.err, lease.ErrSessionGone) && !errors.Is(got.err, lease.ErrBadRecord), ruleUnknown, "%s: %v", c.name, got.err)
	}
	if _, ok := s.(lease.Watcher); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	w := t.watchWith(ctx, s, "", 0)
	select {
	case <-w.done:
	case <-time.After(patience + prompt):
		t.broken(ruleDeadline, "Watch with a deadline of %v goes on", patience)
	}
	t.check(len(w.all()) == 0, ruleUnknown, "Watch told of %s", show(w.all()))
}
