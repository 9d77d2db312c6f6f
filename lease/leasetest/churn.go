package leasetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

var churnCases = []testCase{
	{name: "churn/thirty-clients", run: func(t *T) { churn(t, 30, 40, 6, false) }},
	{name: "churn/one-name", run: func(t *T) { churn(t, 8, 40, 1, false) }},
	{name: "churn/requests-astray", run: func(t *T) { churn(t, 30, 30, 8, true) }},
	{name: "churn/hammer", run: churnHammer},
}

// churner is one client of a history and what it believes to own.
type churner struct {
	*node
	id      int
	peers   []*churner
	history *history
	mine    map[string]lease.Record
}

// churn lets clients do random operations on few names and checks what they
// were told.
func churn(t *T, clients, rounds, names int, astray bool) {
	transfers := probe(t)&needTransfer != 0
	h := &history{t: t}
	stores := make([]lease.Store, min(clients, 8))
	for i := range stores {
		stores[i] = t.client()
		if astray {
			stores[i] = t.faults()
		}
	}
	cs := make([]*churner, clients)
	for i := range cs {
		cs[i] = &churner{node: t.nodeOn(stores[i%len(stores)]), id: i, peers: cs, history: h, mine: make(map[string]lease.Record)}
	}
	for _, s := range stores {
		if f, ok := s.(faults); ok {
			f.SetRule(func(faultstore.Call) faultstore.Fault { return t.mishap() })
		}
	}
	t.together(clients, func(i int) {
		for range rounds {
			cs[i].once(fmt.Sprintf("churn/%d", t.random(names)), transfers)
			t.pace()
		}
	})
	for _, s := range stores {
		if f, ok := s.(faults); ok {
			f.SetRule(nil)
			f.Wait()
		}
	}
	for i := range names { // what stands in the end belongs to the history too
		cs[0].look(fmt.Sprintf("churn/%d", i))
	}
	if !t.Failed() {
		h.check()
	}
}

// mishap is drawn for every call: most meet none.
func (t *T) mishap() faultstore.Fault {
	soon := time.Duration(t.random(8)) * 100 * time.Microsecond
	switch t.random(80) {
	case 0:
		return faultstore.Fault{Kind: faultstore.ApplyThenFail}
	case 1:
		return faultstore.Fault{Kind: faultstore.LandLate, Delay: soon}
	case 2:
		return faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * soon}
	case 3:
		return faultstore.Fault{Kind: faultstore.Drop}
	case 4, 5, 6, 7:
		return faultstore.Fault{Kind: faultstore.Delay, Delay: soon}
	case 8, 9, 10, 11:
		return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: soon}
	}
	return faultstore.Fault{}
}

// once does one random operation on a name.
func (c *churner) once(name string, transfers bool) {
	own, mine := c.mine[name]
	switch n := c.t.random(10); {
	case n < 2:
		c.look(name)
	case !mine || n == 2:
		c.claim(name, 0)
	case n < 5:
		c.claim(name, own.Token)
	case n < 7 && transfers:
		c.giveTo(c.peers[c.t.random(len(c.peers))], own)
	default:
		c.letGo(own)
	}
}

func (c *churner) look(name string) {
	c.history.run(c.id, request{kind: opGet, name: name}, func() reply {
		ctx, cancel := c.t.context()
		defer cancel()
		found, err := c.t.getCtx(ctx, c.store, name)
		if err == nil && found[name].Session == c.session.ID {
			c.mine[name] = found[name] // given by transfer, or by a request that got no answer
		}
		return reply{unknown: err != nil, record: found[name]}
	})
}

func (c *churner) claim(name string, over lease.Token) {
	claim := c.t.claim(name)
	claim.Supersedes = over
	in := request{kind: opAcquire, name: name, by: c.session, nonce: claim.Nonce, over: over}
	c.settle(name, c.history.run(c.id, in, func() reply {
		ctx, cancel := c.t.context()
		defer cancel()
		return answer(c.acquireCtx(ctx, claim))
	}))
}

func (c *churner) letGo(own lease.Record) {
	in := request{kind: opRelease, name: own.Name, present: own.Held()}
	c.settle(own.Name, c.history.run(c.id, in, func() reply {
		ctx, cancel := c.t.context()
		defer cancel()
		out := answer(c.t.releaseCtx(ctx, c.store, own.Held()))
		if out.ok {
			out.record = lease.Record{} // nothing stands
		}
		return out
	}))
}

func (c *churner) giveTo(to *churner, own lease.Record) {
	offer := to.offer(own.Name)
	in := request{kind: opTransfer, name: own.Name, by: to.session, nonce: offer.Nonce, present: own.Held()}
	c.settle(own.Name, c.history.run(c.id, in, func() reply {
		ctx, cancel := c.t.context()
		defer cancel()
		return answer(c.t.transferCtx(ctx, c.store, lease.Transfer{Held: own.Held(), To: offer}))
	}))
}

// settle takes a reply for what the client now owns. After an unknown outcome
// it keeps its belief, and so sends requests with stale tokens later on.
func (c *churner) settle(name string, out reply) {
	switch {
	case out.unknown:
	case out.record.Token != 0 && out.record.Session == c.session.ID:
		c.mine[name] = out.record
	default:
		delete(c.mine, name)
	}
}

func answer(outs []lease.Outcome, err error) reply {
	if err != nil || len(outs) != 1 || outs[0].Err != nil {
		return reply{unknown: true}
	}
	return reply{ok: outs[0].OK, record: outs[0].Record}
}

// churnHammer calls everything at once, for the race detector and for deadlocks.
func churnHammer(t *T) {
	var wg sync.WaitGroup
	first := t.node()
	has := probe(t)
	for i := range 8 {
		n := t.node()
		wg.Go(func() {
			for j := range 25 {
				name := fmt.Sprintf("h/%d", t.random(5))
				ctx, cancel := t.context()
				c := t.claim(name)
				c.Metadata = map[string]string{"i": fmt.Sprint(i), "j": fmt.Sprint(j)}
				outs, err := n.acquireCtx(ctx, c, t.claim(fmt.Sprintf("h/own/%d/%d", i, j)))
				for _, out := range outs {
					if out.OK && has&needTransfer != 0 && t.random(2) == 0 {
						_, err = t.transferCtx(ctx, n.store, lease.Transfer{Held: out.Record.Held(), To: first.offer(out.Record.Name)})
					} else if out.OK {
						_, err = t.releaseCtx(ctx, n.store, out.Record.Held())
					}
				}
				if err == nil {
					_, err = n.store.Renew(ctx, []lease.Session{n.session})
				}
				if err == nil {
					_, err = t.getCtx(ctx, n.store, name, "h/none")
				}
				if err == nil && has&needList != 0 && j%5 == 0 {
					_, err = t.listAll(n.store, "h/")
				}
				cancel()
				if err != nil {
					t.Errorf("among many calls at once: %v", err)
					return
				}
				t.pace()
			}
		})
	}
	if has&needWatch != 0 {
		for range 3 {
			w := t.watch(t.client(), "h/")
			defer func() {
				w.synced()
				w.check()
			}()
		}
	}
	wg.Wait()
}
