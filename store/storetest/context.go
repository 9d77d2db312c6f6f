package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/store"
)

// prompt is what "promptly" means of a call whose context is done.
const prompt = 2 * time.Second

var contextCases = []testCase{
	{name: "context/done", run: held(func(t *storeT, n, b *node) {
		for _, ago := range []time.Duration{0, time.Second} { // cancelled, and past its deadline
			begin := func(ctx context.Context) (context.Context, context.CancelFunc) {
				if ago == 0 {
					done, cancel := context.WithCancel(ctx)
					cancel()
					return done, cancel
				}
				return context.WithDeadline(ctx, time.Now().Add(-ago))
			}
			n.callAll(n.own, b, prompt, ruleContextDone, ruleContextDone, begin)
		}
		time.Sleep(10 * t.tick()) // for what was sent all the same
		n.stands(n.own, ruleContextDone)
		n.free("free", ruleContextDone)
		n.freed(n.own)
	})},
	{name: "context/cancelled-in-a-list", needs: needList, run: one(func(t *storeT, n *node) {
		names := n.many(200)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		seen, failed := 0, false
		for _, err := range n.store.List(ctx, store.Query{Prefix: "many/"}) {
			if failed = err != nil; failed {
				break
			}
			seen++
			cancel()
		}
		t.check(failed || seen == len(names), ruleWholeListing, "cancelled after the first record, List ended after %d of %d without an error", seen, len(names))
	})},
	{name: "context/short-deadlines", run: one(contextShort)},
	{name: "context/unreachable", needs: needUnreachable, run: func(t *storeT) {
		n := &node{t: t, store: t.opts.unreachable(t)(), session: t.newSession(t.owner(), max(t.ttl, time.Second))}
		r := store.Record{Name: "a", Owner: n.session.Owner, Session: n.session.ID, Token: 1, Nonce: 1}
		const patience = 100 * time.Millisecond
		n.callAll(r, n, patience+prompt, ruleDeadline, ruleUnknown, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patience)
		})
	}},
}

// calls are all calls of a store, about what the node owns as r and what it does
// not own: "free".
func (n *node) calls(r store.Record, to *node) map[string]func(context.Context) error {
	t, s := n.t, n.store
	all := map[string]func(context.Context) error{
		"OpenSession": func(ctx context.Context) error {
			g, err := s.OpenSession(ctx, t.newSession(t.owner(), n.session.TTL))
			return errors.Join(err, g.Err)
		},
		"CloseSession": func(ctx context.Context) error { return s.CloseSession(ctx, n.session) },
		"Acquire": func(ctx context.Context) error {
			return errOf(s.Acquire(ctx, n.session, []store.Claim{t.claim("free")}))
		},
		"Acquire (superseding)": func(ctx context.Context) error {
			return errOf(s.Acquire(ctx, n.session, []store.Claim{t.supersede(r)}))
		},
		"Renew": func(ctx context.Context) error {
			gs, err := s.Renew(ctx, []store.Session{n.session})
			for _, g := range gs { // a failure may be told call by call or grant by grant
				err = errors.Join(err, g.Err)
			}
			return err
		},
		"Release": func(ctx context.Context) error {
			return errOf(s.Release(ctx, []store.Held{r.Held()}))
		},
		"Get":  func(ctx context.Context) error { return errOf(s.Get(ctx, r.Name)) },
		"List": func(ctx context.Context) error { return first(s.List(ctx, store.Query{}), nil) },
	}
	if tr, ok := s.(store.Transferrer); ok {
		all["Transfer"] = func(ctx context.Context) error {
			outs, err := tr.Transfer(ctx, []store.Transfer{to.taking(r.Held())})
			if err == nil && len(outs) == 1 {
				err = outs[0].Err
			}
			return err
		}
	}
	if s.Limits().BySession {
		all["List of a session"] = func(ctx context.Context) error {
			return first(n.records(n).of(ctx), nil)
		}
	}
	if _, ok := s.(store.Watcher); ok {
		for _, k := range []watchKind{ofChanges, ofDeletions} {
			all[k.name] = func(ctx context.Context) error {
				return first(k.of(s, time.Second)(ctx, ""), ctx)
			}
		}
	}
	return all
}

// first is the error that an iterator began with: a watch may end with its context without a word.
func first[V any](all iter.Seq2[V, error], watch context.Context) error {
	for _, err := range all {
		return err
	}
	if watch != nil {
		return watch.Err()
	}
	return nil
}

// callAll makes every call with a context of the case. It must come back within the limit by the rule
// late, and with an error that claims nothing by the rule why.
func (n *node) callAll(r store.Record, to *node, limit time.Duration, late, why rule, begin func(context.Context) (context.Context, context.CancelFunc)) {
	n.t.Helper()
	t := n.t
	for name, call := range n.calls(r, to) {
		ctx, cancel := begin(context.WithoutCancel(t.Context()))
		back := make(chan error, 1)
		go func() { back <- call(ctx) }()
		select {
		case err := <-back:
			claims := cases.IsAny(err, store.ErrSessionGone, store.ErrBadRecord)
			t.check(err != nil && !claims, why, "%s: error %v", name, err)
		case <-time.After(limit):
			t.broken(late, "%s has not returned after %v", name, limit)
			t.Cleanup(func() {
				select {
				case <-back:
				case <-time.After(callBound):
				}
			})
		}
		cancel()
	}
}

// contextShort makes calls with hardly any time. Each gets its answer or an
// error, soon; a refusal of a name that is free is a lie.
func contextShort(t *storeT, n *node) {
	for i := range 60 {
		deadline := time.Duration(i*i) * time.Microsecond
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
		began := time.Now()
		outs, err := n.acquireCtx(ctx, t.claim(fmt.Sprintf("short/%d", i)))
		cancel()
		took := time.Since(began)
		t.check(took < prompt, ruleDeadline, "Acquire with a deadline of %v took %v", deadline, took)
		switch {
		case err != nil:
			t.check(!errors.Is(err, store.ErrSessionGone), ruleUnknown, "Acquire under a live session: %v", err)
		case outs[0].OK:
			n.stands(outs[0].Record, ruleSeenByAll)
		default:
			t.broken(ruleUnknown, "Acquire of a free name with too little time: %+v", outs[0])
		}
	}
}
