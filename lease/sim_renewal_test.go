package lease_test

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// policy is what the leases of a session have in common.
type policy struct {
	renewal string // as their metadata tells
	name    string // of the only one, if they are not renewed by themselves
}

// policyKey is where the witness of a lease finds its policy, in its claims.
const policyKey = "policy"

// drawRenewal picks the policy of a lease: most have none.
func drawRenewal(r *simulate.Random) lease.Renewal {
	all := []lease.Renewal{lease.RenewEager(), lease.RenewLazy(), lease.RenewAt(0.2), lease.RenewAdaptive(),
		lease.RenewOnActivity(), lease.RenewByHand(), lease.RenewNever()}
	if i := r.IntN(2 * len(all)); i < len(all) {
		return all[i]
	}
	return (lease.Renewal{})
}

// judgeSharing checks that a session is of one policy, and of one name if that is not renewed by
// itself.
func (n *simNode) judgeSharing(s store.Session, claims []store.Claim) {
	n.seen.Lock()
	defer n.seen.Unlock()
	for _, c := range claims {
		p := policy{renewal: c.Metadata[policyKey]}
		if !automatic(p.renewal) {
			p.name = c.Name
		}
		if before, ok := n.policies[s.ID]; ok && before != p {
			n.s.fail("%s %s: session %d is of %+v and of %+v", n.id, c.Name, s.ID, before, p)
		}
		n.policies[s.ID] = p
	}
}

// judgeRenewal checks that what is not to be renewed is not.
func (n *simNode) judgeRenewal(ss []store.Session) {
	n.seen.Lock()
	defer n.seen.Unlock()
	for _, s := range ss {
		p, ok := n.policies[s.ID]
		if ok && (p.renewal == "never" || p.name != "" && !n.asked[p.name]) {
			n.s.fail("%s %s: session %d is renewed, though its policy is %s and nobody asked", n.id, p.name, s.ID, p.renewal)
		}
	}
}

func automatic(word string) bool {
	var r lease.Renewal
	return word == "" || r.UnmarshalText([]byte(word)) == nil && r.Automatic()
}

// use is what an owner does who has a say in the renewal. A Renew that succeeds was confirmed by an
// answer to a request that was sent later.
func (l *held) use(patience time.Duration) {
	n := l.n
	if l.renewal != lease.RenewNever() {
		n.seen.Lock()
		n.asked[l.name] = true
		n.seen.Unlock()
	}
	l.h.Touch()
	l.do("renew", patience, func(ctx context.Context) {
		<-n.waking()
		asked := n.clock.Now().Mono
		before, held := l.h.Term()
		err := l.call("renew", func() error { return l.h.Renew(ctx) })
		after, still := l.h.Term()
		if err != nil || !held || !still || before.Token() != after.Token() {
			return
		}
		n.seen.Lock()
		defer n.seen.Unlock()
		c := n.sessions[n.under[store.Held{Name: l.name, Token: after.Token()}]]
		if c != nil && (c.sent < asked || l.renewal == lease.RenewNever()) {
			n.s.fail("%s %s: %d was renewed by hand, it is said, at %v, asked at %v, by policy %v", n.id, l.name, after.Token(), c.sent, asked, l.renewal)
		}
	})
}
