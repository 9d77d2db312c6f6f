package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// call is one of a Provider's, about one key.
//
// Other calls of the same owner are not known, and their requests may still land. So
// whatever shortens the life of a record goes in two steps: the record is marked, by a claim in its
// own place and under its own session, which changes how long it lives by nothing; and what follows
// is conditional on the token of the mark. An owner that acquires takes a mark away by a further
// token, after which the second step of the call that set it is refused.
//
//	free ── claim ──▶ held ──── mark ────▶ being given up ──── release, transfer ──▶ free, another's
//	                  ▲  └─ renew (token stays)   │
//	                  └────────── claim ──────────┘
//
// The mark says which of two it is: a key that is given up, or one whose TTL changes, which stays the
// owner's, and which a renewal may claim too.
//
// Every claim has a session of its own, and only a mark is written under one that stood before. So
// a session may be closed, also late, by a call that saw that nothing stands under it: what may come
// under it yet is a mark, and no caller was told that a mark is held.
type call struct {
	p     *Provider
	ctx   context.Context
	name  string
	owner lease.Owner
	wrote bool // something was sent that may be applied, or may have been
}

// rounds bounds how often a call looks again as the key changed under it.
const rounds = 8

var errRestless = fmt.Errorf("the key changed %d times meanwhile", rounds)

// acquire takes the key, or renews it; with free it may be free, and may be marked.
func (c *call) acquire(ttl time.Duration, free bool) (Result, error) {
	for range rounds {
		r, stands, err := c.get()
		if err != nil {
			return Result{}, err
		}
		own := stands && r.Owner.Incarnation == c.owner.Incarnation
		mark := r.Metadata[givingKey]
		asked := r.Metadata[askedKey] == ttl.String()
		var result Result
		switch {
		case stands && !own, !free && (!own || mark == toGive):
			return c.held(r), nil
		case own && mark == "" && asked:
			result, err = c.renew(r)
		case own && mark == "":
			_, _, err = c.mark(toChange)
		default:
			result, err = c.claim(r.Token, ttl)
			if err == nil && result.Acquired && own {
				c.close(sessionOf(r))
			}
		}
		if err != nil || result.Acquired {
			return result, err
		}
	}
	return Result{}, errRestless
}

// renew extends the session of a record, which stands for what it is if it does so afterwards.
func (c *call) renew(r lease.Record) (Result, error) {
	sent, s := time.Now(), sessionOf(r)
	grant, err := c.open(s)
	if err != nil {
		return Result{}, err
	}
	now, stands, err := c.get()
	if err != nil {
		return Result{}, err
	}
	if !stands || now.Session != s.ID {
		c.close(s) // it had ended, and is open again
	}
	if !stands || now.Held() != r.Held() {
		return Result{}, nil // it had expired, or another call acted in the owner's name
	}
	return Result{true, c.owner.ID, r.Token, expires(sent, grant)}, nil
}

// claim takes the key, which is free or under the token over, under a session of its own.
func (c *call) claim(over lease.Token, ttl time.Duration) (Result, error) {
	sent, s := time.Now(), session(c.owner, ttl)
	grant, err := c.open(s)
	if err != nil {
		return Result{}, err
	}
	s.TTL = grant.TTL // for the record
	won, ok, err := c.take(s, over, map[string]string{askedKey: ttl.String()})
	if err != nil || !ok {
		if !c.wrote {
			c.close(s) // nothing is under it, and nothing comes
		}
		return Result{}, err
	}
	return Result{true, c.owner.ID, won.Token, expires(sent, grant)}, nil
}

// take claims the key under s, in the place of what has the token over. false: something else
// stands, or the session has ended.
func (c *call) take(s store.Session, over lease.Token, metadata map[string]string) (r lease.Record, ok bool, err error) {
	won, err := c.send(func() ([]store.Outcome, error) {
		out, err := c.p.store.Acquire(c.ctx, s, []store.Claim{{Name: c.name, Nonce: rand.Uint64(), Supersedes: over, Metadata: metadata}})
		if errors.Is(err, store.ErrSessionGone) {
			return []store.Outcome{{}}, nil
		}
		return out, err
	})
	return won.Record, won.OK, err
}

// release gives the key up, if it is the owner's.
func (c *call) release() error {
	for range rounds {
		r, ok, err := c.mark(toGive)
		if err != nil || !ok {
			return err
		}
		done, err := c.send(func() ([]store.Outcome, error) { return c.p.store.Release(c.ctx, []store.Held{r.Held()}) })
		if done.OK {
			c.close(sessionOf(r))
		}
		if err != nil || done.OK {
			return err
		}
	}
	return errRestless
}

// transfer hands the key over.
func (c *call) transfer(to string, ttl time.Duration) (Result, error) {
	target := &call{p: c.p, ctx: c.ctx, name: c.name, owner: of(to)}
	defer func() { c.wrote = c.wrote || target.wrote }()
	by, ok := c.p.store.(store.Transferrer)
	if !ok {
		return Result{}, lease.ErrUnsupported
	}
	for range rounds {
		r, stands, err := c.get()
		switch {
		case err != nil:
			return Result{}, err
		case stands && r.Owner.Incarnation == target.owner.Incarnation: // it has been handed over
			return target.acquire(ttl, false)
		case !stands || r.Owner.Incarnation != c.owner.Incarnation:
			return Result{}, nil
		}
		if result, err := c.move(by, target, ttl); err != nil || result.Acquired {
			return result, err
		}
	}
	return Result{}, errRestless
}

// move hands over what is marked, in one step.
func (c *call) move(by store.Transferrer, target *call, ttl time.Duration) (Result, error) {
	r, ok, err := c.mark(toGive)
	if err != nil || !ok {
		return Result{}, err
	}
	s := session(target.owner, ttl)
	grant, err := c.open(s)
	if err != nil {
		return Result{}, err
	}
	done, err := c.send(func() ([]store.Outcome, error) {
		return by.Transfer(c.ctx, []store.Transfer{{
			Held:     r.Held(),
			To:       lease.Offer{Name: c.name, Owner: s.Owner, Session: s.ID, TTL: grant.TTL, Nonce: rand.Uint64()},
			Metadata: map[string]string{askedKey: ttl.String()},
		}})
	})
	switch {
	case done.OK:
		c.close(sessionOf(r))
		return Result{Acquired: true, Owner: s.Owner.ID, Token: done.Record.Token}, nil
	case !c.wrote:
		c.close(s)
	}
	if errors.Is(done.Err, store.ErrSessionGone) { // it ended before it was used
		err = nil
	}
	return Result{}, err
}

// send makes a request that may change what stands under the name, and returns what became of it.
// A definite answer settles that.
func (c *call) send(request func() ([]store.Outcome, error)) (store.Outcome, error) {
	before := c.wrote
	c.wrote = true
	out, err := request()
	switch {
	case err != nil:
		if errors.Is(err, lease.ErrDenied) && !errors.Is(err, lease.ErrUnknown) {
			c.wrote = before
		}
		return store.Outcome{}, err
	case len(out) != 1:
		return store.Outcome{}, fmt.Errorf("%w: %d outcomes for one name", lease.ErrInconsistent, len(out))
	}
	c.wrote = false
	return out[0], out[0].Err
}

// mark writes into the owner's record that it is being given up, or changed. false: it is not the
// owner's.
func (c *call) mark(why string) (lease.Record, bool, error) {
	var s store.Session // that was opened in the last round
	for range rounds {
		r, stands, err := c.get()
		if err == nil && s.ID != 0 && (!stands || r.Session != s.ID) {
			c.close(s) // it had ended, and is open again
		}
		if err != nil || !stands || r.Owner.Incarnation != c.owner.Incarnation {
			return r, false, err
		}
		s = sessionOf(r)
		if _, err := c.open(s); err != nil { // it may not be known here
			return r, false, err
		}
		metadata := map[string]string{askedKey: r.Metadata[askedKey], givingKey: why}
		marked, ok, err := c.take(s, r.Token, metadata)
		if ok {
			c.wrote = true // the owner has it again if it had been free just before
		}
		if err != nil || ok {
			return marked, ok, err
		}
	}
	return lease.Record{}, false, errRestless
}

// sessionOf is the one under which a record stands, or stood.
func sessionOf(r lease.Record) store.Session {
	return store.Session{ID: r.Session, Owner: r.Owner, TTL: r.TTL}
}

// get returns what stands under the name.
func (c *call) get() (r lease.Record, stands bool, err error) {
	found, err := c.p.store.Get(c.ctx, c.name)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	if r = found[0]; r.Token == 0 {
		return r, true, lease.ErrBadRecord
	}
	return r, true, nil
}

// open opens a session, or renews it. It may be open without being known: that changes nothing of
// who has what.
func (c *call) open(s store.Session) (store.Grant, error) {
	grant, err := c.p.store.OpenSession(c.ctx, s)
	return grant, cmp.Or(err, grant.Err)
}

// expires is how long the owner may count on what was granted by a request that was sent then: for the
// TTL less a tenth, by which the store's clock may be ahead.
func expires(sent time.Time, g store.Grant) time.Time { return sent.Add(g.TTL - g.TTL/10) }

// close ends a session under which nothing is held any more; else it ends with its TTL.
func (c *call) close(s store.Session) {
	_ = c.p.store.CloseSession(c.ctx, s)
}

// held is the Result for a record of another.
func (c *call) held(r lease.Record) Result {
	if !strings.HasPrefix(r.Owner.Incarnation, incarnation) {
		return Result{}
	}
	result := Result{Owner: r.Owner.ID}
	if r.Left > 0 {
		result.Expires = time.Now().Add(r.Left)
	}
	return result
}
