package leasetest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

// Cases that ask a pername.Backend: see the option Names.
var nameCases = []testCase{
	{name: "names/renew", needs: needNames, run: func(t *T) {
		eachChange(t, func(k *nameKit, now lease.Record, h lease.Held) {
			k.op(func(ctx context.Context) error {
				ok, err := k.store.Renew(ctx, k.former, h)
				t.require(!ok, ruleNameRenew, "%+v renewed what stands as %+v", h, now.Held())
				return err
			})
		})
	}},
	{name: "names/release", needs: needNames, run: func(t *T) {
		eachChange(t, func(k *nameKit, now lease.Record, h lease.Held) {
			k.op(func(ctx context.Context) error {
				ok, err := k.store.Release(ctx, h)
				t.require(!ok, ruleNameRelease, "%+v released what stands as %+v", h, now.Held())
				return err
			})
		})
	}},
	{name: "names/transfer", needs: needNames | needTransfer, run: func(t *T) {
		eachChange(t, func(k *nameKit, now lease.Record, h lease.Held) {
			k.op(func(ctx context.Context) error {
				out, err := k.store.(pername.Transferer).Transfer(ctx, lease.Transfer{Held: h, To: offerOf(k.former, h.Name, nonce())})
				t.require(!out.OK, ruleNameTransfer, "%+v moved what stands as %+v", h, now.Held())
				return err
			})
		})
	}},
	{name: "names/renewal-of-another's", needs: needNames, waits: true, run: nameRenewals},
}

// nameKit is a Backend and two of its users.
type nameKit struct {
	t       *T
	store   pername.Backend
	former  lease.Session // who held a name
	present lease.Session // who holds it
}

func newNameKit(t *T) *nameKit {
	long := max(30*t.ttl, time.Minute)
	return &nameKit{t: t, store: t.opts.names(t)(), former: t.newSession(t.owner(), long), present: t.newSession(t.owner(), long)}
}

// op makes one request. It is fatal.
func (k *nameKit) op(f func(ctx context.Context) error) {
	k.t.Helper()
	ctx, cancel := k.t.context()
	defer cancel()
	if err := f(ctx); err != nil {
		k.t.Fatalf("Backend: %v", err)
	}
}

// win is a claim that must succeed. It is fatal.
func (k *nameKit) win(s lease.Session, c lease.Claim) (r lease.Record) {
	k.t.Helper()
	k.op(func(ctx context.Context) error {
		out, err := k.store.Acquire(ctx, s, c)
		k.t.require(err != nil || out.OK, ruleFree, "%+v was refused: %+v", c, out)
		r = out.Record
		return err
	})
	return r
}

// stands checks that r does. It is fatal.
func (k *nameKit) stands(r lease.Record, why rule) {
	k.t.Helper()
	k.op(func(ctx context.Context) error {
		got, ok, err := k.store.Get(ctx, r.Name)
		k.t.require(err != nil || ok && got.Held() == r.Held() && got.Owner == r.Owner, why, "%q stands as %+v (%v), not as %+v", r.Name, got, ok, r)
		return err
	})
}

func offerOf(s lease.Session, name string, nonce uint64) lease.Offer {
	return lease.Offer{Name: name, Owner: s.Owner, Session: s.ID, TTL: s.TTL, Nonce: nonce, Handle: s.Handle, Lifetime: time.Minute}
}

// eachChange takes a name through each way of changing hands, with another nonce and
// with the same, and lets try each thing that is not what stands then.
func eachChange(t *T, try func(k *nameKit, now lease.Record, h lease.Held)) {
	k := newNameKit(t)
	ways := map[string]func(old lease.Record, nonce uint64) lease.Record{
		"nothing": func(old lease.Record, _ uint64) lease.Record { return old },
		"release": func(old lease.Record, nonce uint64) lease.Record {
			k.op(func(ctx context.Context) error {
				ok, err := k.store.Release(ctx, old.Held())
				t.require(err != nil || ok, ruleRelease, "%+v", old)
				return err
			})
			return k.win(k.present, lease.Claim{Name: old.Name, Nonce: nonce})
		},
		"supersede": func(old lease.Record, nonce uint64) lease.Record {
			return k.win(k.former, lease.Claim{Name: old.Name, Nonce: nonce, Supersedes: old.Token})
		},
	}
	if tr, ok := k.store.(pername.Transferer); ok {
		ways["transfer"] = func(old lease.Record, nonce uint64) (r lease.Record) {
			k.op(func(ctx context.Context) error {
				out, err := tr.Transfer(ctx, lease.Transfer{Held: old.Held(), To: offerOf(k.present, old.Name, nonce)})
				t.require(err != nil || out.OK, ruleTransfer, "%+v: %+v", old, out)
				r = out.Record
				return err
			})
			return r
		}
	}
	for way, take := range ways {
		for _, suffix := range []string{"/other-nonce", "/same-nonce"} {
			beside := k.win(k.present, t.claim("beside/"+way+suffix))
			old, again := k.win(k.former, t.claim(way+suffix)), nonce()
			if suffix == "/same-nonce" {
				again = old.Nonce
			}
			now := take(old, again)
			for _, h := range mistaken(old, now, beside.Name) {
				try(k, now, h)
				k.stands(now, ruleHands)
			}
			k.stands(beside, ruleHands)
		}
	}
}

// nameRenewals: what is another's by now ends when it would have ended, however
// often who had it before renews what was his.
func nameRenewals(t *T) {
	k := newNameKit(t)
	k.present.TTL = t.ttl
	old := k.win(k.former, t.claim("a"))
	k.op(func(ctx context.Context) error { _, err := k.store.Release(ctx, old.Held()); return err })
	now := k.win(k.present, t.claim("a"))
	held := mistaken(old, now, "beside")
	for latest := time.Now().Add(t.ttl + t.slack); ; time.Sleep(t.tick()) {
		asked := time.Now()
		var stands bool
		k.op(func(ctx context.Context) (err error) {
			for _, h := range held {
				if ok, err := k.store.Renew(ctx, k.former, h); ok || err != nil {
					t.check(!ok, ruleNameRenew, "%+v renewed what stands as %+v", h, now.Held())
					return err
				}
			}
			_, stands, err = k.store.Get(ctx, "a")
			return err
		})
		if t.Failed() || !stands {
			return
		}
		t.inTime(!asked.After(latest), ruleRenewOnly, "a record with a TTL of %v stands %v after it was made", t.ttl, asked.Sub(latest.Add(-t.ttl-t.slack)))
	}
}
