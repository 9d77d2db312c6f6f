package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var churnCases = []testCase{
	{name: "churn/thirty-clients", run: func(t *storeT) { churn(t, 30, 40, 6, false) }},
	{name: "churn/one-name", run: func(t *storeT) { churn(t, 8, 40, 1, false) }},
	{name: "churn/requests-astray", run: func(t *storeT) { churn(t, 30, 30, 8, true) }},
}

// churner is one client of a history and what it believes to own.
type churner struct {
	*node
	id      int
	peers   []*churner
	history *history
	mine    map[string]store.Record
}

// churn lets clients do random operations on few names and checks what they
// were told.
func churn(t *storeT, clients, rounds, names int, astray bool) {
	h := &history{t: t}
	stores := make([]store.Store, min(clients, 8))
	var fs []*faultstore.Store
	for i := range stores {
		stores[i] = t.client()
		if astray {
			fs = append(fs, t.faults())
			stores[i] = fs[i]
		}
	}
	cs := make([]*churner, clients)
	for i := range cs {
		cs[i] = &churner{node: t.nodeOn(stores[i%len(stores)]), id: i, peers: cs, history: h, mine: make(map[string]store.Record)}
	}
	for _, f := range fs {
		f.SetRule(func(faultstore.Call) faultstore.Fault { return t.mishap() })
	}
	t.together(clients, func(i int) {
		for range rounds {
			cs[i].once(fmt.Sprintf("churn/%d", t.random(names)))
			t.pace()
		}
	})
	for _, f := range fs {
		f.SetRule(nil)
		f.Wait()
	}
	for i := range names { // what stands in the end belongs to the history too
		cs[0].look(fmt.Sprintf("churn/%d", i))
	}
	h.check()
}

// mishap is drawn for every call: most meet none.
func (t *storeT) mishap() faultstore.Fault {
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
func (c *churner) once(name string) {
	own, mine := c.mine[name]
	switch n := c.t.random(10); {
	case n < 2:
		c.look(name)
	case !mine || n == 2:
		c.claim(name, 0)
	case n < 5:
		c.claim(name, own.Token)
	case n < 7 && c.t.can(needTransfer):
		c.giveTo(c.peers[c.t.random(len(c.peers))], own)
	case n == 7:
		ctx, cancel := c.t.context()
		defer cancel()
		if err := errOf(c.store.Renew(ctx, []store.Session{c.session})); !errors.Is(err, faultstore.ErrInjected) {
			c.t.must(err, "Renew")
		}
	default:
		c.letGo(own)
	}
}

func (c *churner) look(name string) {
	c.history.run(c.id, request{kind: opGet, name: name}, func() reply {
		found, err := c.gets(name)
		if err == nil && found[name].Session == c.session.ID {
			c.mine[name] = found[name] // given by transfer, or by a request that got no answer
		}
		return reply{unknown: err != nil, record: found[name]}
	})
}

func (c *churner) claim(name string, over store.Token) {
	claim := c.t.claim(name)
	claim.Supersedes = over
	c.settle(request{kind: opAcquire, name: name, by: c.session, nonce: claim.Nonce, over: over}, func() reply { return answer(c.acquires(claim)) })
}

func (c *churner) letGo(own store.Record) {
	c.settle(request{kind: opRelease, name: own.Name, present: own.Held()}, func() reply {
		out := answer(c.releases(own.Held()))
		if out.ok {
			out.record = store.Record{} // nothing stands
		}
		return out
	})
}

func (c *churner) giveTo(to *churner, own store.Record) {
	m := to.taking(own.Held())
	c.settle(request{kind: opTransfer, name: own.Name, by: to.session, nonce: m.To.Nonce, present: m.Held}, func() reply { return answer(c.transfers(m)) })
}

// settle sends a request, and takes the reply for what the client now owns. After an unknown outcome
// it keeps its belief, and so sends requests with stale tokens later on.
func (c *churner) settle(in request, do func() reply) {
	switch out := c.history.run(c.id, in, do); {
	case out.unknown:
	case out.record.Token != 0 && out.record.Session == c.session.ID:
		c.mine[in.name] = out.record
	default:
		delete(c.mine, in.name)
	}
}

func answer(outs []store.Outcome, err error) reply {
	if err != nil || len(outs) != 1 || outs[0].Err != nil {
		return reply{unknown: true}
	}
	return reply{ok: outs[0].OK, record: outs[0].Record}
}

// The model of one name, against which histories are checked. It knows no
// expiry: sessions in these histories outlast them.
//
//	          acquire                       transfer, superseding acquire
//	free ───────────────▶ held(owner, nonce, token) ───▶ held(…, a newer token)
//	  ▲                     │ release by this token and nonce
//	  └─────────────────────┘
//
// An operation whose outcome is unknown has no end: it may take effect at any
// moment after it was sent. If it does, its token is not known until somebody
// reports the record.

type opKind uint8

const (
	opAcquire opKind = iota
	opRelease
	opTransfer
	opGet
)

// request is the input of one operation on one name.
type request struct {
	kind    opKind
	name    string
	by      store.Session // acquire: the claimant's; transfer: the target's
	nonce   uint64        // acquire, transfer: of the new record
	present store.Held    // release, transfer: the condition
	over    store.Token   // acquire: Supersedes
}

// reply is its output.
type reply struct {
	unknown bool
	ok      bool
	record  store.Record // what stands afterwards; its token is 0 if nothing, or not told
}

// state is what the model knows of a name.
type state struct {
	held        bool
	session     store.SessionID
	incarnation string
	nonce       uint64
	token       store.Token // 0: issued in an operation of unknown outcome, not seen yet
	floor       store.Token // tokens issued from now on are higher; so is an unseen one
}

// is tells whether the state's record may be the one with this token and nonce.
func (s state) is(token store.Token, nonce uint64) bool {
	return s.held && s.nonce == nonce && (s.token == token || s.token == 0 && token > s.floor)
}

// shown is the state after somebody was shown its record; ok is false if it is
// not the one that stands.
func (s state) shown(r store.Record) (next state, ok bool) {
	if r.Token == 0 {
		return s, false
	}
	if !s.is(r.Token, r.Nonce) || s.session != r.Session || s.incarnation != r.Owner.Incarnation {
		return s, false
	}
	s.token, s.floor = r.Token, max(s.floor, r.Token)
	return s, true
}

func (s state) put(by store.Session, nonce uint64, token store.Token) state {
	return state{
		held: true, session: by.ID, incarnation: by.Owner.Incarnation, nonce: nonce,
		token: token, floor: max(s.floor, s.token, token),
	}
}

func (s state) free() state { return state{floor: max(s.floor, s.token)} }

// apply is whether the operation, done at this moment, takes effect.
func (s state) applies(in request) bool {
	switch in.kind {
	case opAcquire:
		return !s.held || in.over != 0 && s.incarnation == in.by.Owner.Incarnation &&
			(s.token == in.over || s.token == 0 && in.over > s.floor)
	case opRelease, opTransfer:
		return s.is(in.present.Token, in.present.Nonce)
	}
	return false
}

func (s state) step(in request, out reply) (state, bool) {
	applies := s.applies(in)
	switch {
	case in.kind == opGet:
		if out.record.Token == 0 {
			return s, !s.held
		}
		return s.shown(out.record)
	case out.unknown && !applies:
		return s, true
	case out.unknown || out.ok && applies:
		if in.kind == opRelease {
			return s.free(), true
		}
		token := out.record.Token // 0 if unknown
		return s.put(in.by, in.nonce, token), out.unknown || token > max(s.floor, s.token)
	case out.ok || applies:
		return s, false // said to be applied and could not be, or the reverse
	case !s.held:
		return s, out.record.Token == 0
	case out.record.Token == 0:
		return s, in.kind == opRelease // which need not report
	}
	return s.shown(out.record)
}

// history records the operations on all names.
type history struct {
	t   *storeT
	mu  sync.Mutex
	ops []porcupine.Operation
}

// run does an operation and records it. Reads of unknown outcome say nothing
// and are left out.
func (h *history) run(client int, in request, do func() reply) reply {
	call := h.t.clock.Add(1)
	out := do()
	end := h.t.clock.Add(1)
	if out.unknown {
		end = math.MaxInt64
		if in.kind == opGet {
			return out
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
	return out
}

// maxSteps bounds the search through one name's history. A history of this kit
// takes some thousands.
const maxSteps = 5_000_000

// check looks for an order of the operations that explains every reply.
func (h *history) check() {
	h.t.Helper()
	byName := make(map[string][]porcupine.Operation)
	for _, op := range h.ops {
		name := op.Input.(request).name
		byName[name] = append(byName[name], op)
	}
	for name, ops := range byName {
		ok, decided := linearizable(ops)
		switch {
		case !decided:
			h.t.Errorf("no verdict: the history of %q (%d operations) needs more than %d steps to check", name, len(ops), maxSteps)
		case !ok:
			h.t.broken(ruleLinear, "no order explains the replies about %q:\n%s", name, shortest(ops))
		}
	}
}

func linearizable(ops []porcupine.Operation) (ok, decided bool) {
	steps := 0 // one partition is checked on one goroutine
	ok = porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			if steps++; steps > maxSteps {
				return false, s
			}
			next, ok := s.(state).step(in.(request), out.(reply))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(state) == b.(state) },
	}, ops)
	return ok, steps <= maxSteps
}

// shortest writes the end of the shortest beginning of a history that no order
// explains.
func shortest(ops []porcupine.Operation) string {
	returns := make([]int64, 0, len(ops))
	for _, op := range ops {
		if op.Return != math.MaxInt64 {
			returns = append(returns, op.Return)
		}
	}
	slices.Sort(returns)
	until := func(end int64) (cut []porcupine.Operation) {
		for _, op := range ops {
			if op.Call > end {
				continue
			}
			if op.Return > end { // not answered yet
				if op.Input.(request).kind == opGet {
					continue
				}
				op.Return, op.Output = math.MaxInt64, reply{unknown: true}
			}
			cut = append(cut, op)
		}
		return cut
	}
	i := sort.Search(len(returns), func(i int) bool {
		ok, decided := linearizable(until(returns[i]))
		return !ok && decided
	})
	if i < len(returns) {
		ops = until(returns[i])
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	if len(ops) > 25 {
		fmt.Fprintf(&b, "\t… %d operations before\n", len(ops)-25)
		ops = ops[len(ops)-25:]
	}
	for _, op := range ops {
		fmt.Fprintf(&b, "\t%s\n", describe(op))
	}
	return b.String()
}

func describe(op porcupine.Operation) string {
	in, out := op.Input.(request), op.Output.(reply)
	end, said := fmt.Sprint(op.Return), "seen or refused"
	switch {
	case out.unknown:
		end, said = "?", "unknown"
	case out.ok:
		said = "done"
	}
	what := [...]string{"acquire", "release", "transfer", "get"}[in.kind]
	return fmt.Sprintf("[%d–%s] client %d: %s by %s nonce=%d supersedes=%d present=%+v → %s: %s",
		op.Call, end, op.ClientId, what, in.by.Owner.ID, in.nonce, in.over, in.present, said,
		fmt.Sprintf("token=%d nonce=%d of %q", out.record.Token, out.record.Nonce, out.record.Owner.ID))
}
