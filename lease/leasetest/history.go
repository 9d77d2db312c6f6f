package leasetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/lease"
)

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
	by      lease.Session // acquire: the claimant's; transfer: the target's
	nonce   uint64        // acquire, transfer: of the new record
	present lease.Held    // release, transfer: the condition
	over    lease.Token   // acquire: Supersedes
}

// reply is its output.
type reply struct {
	unknown bool
	ok      bool
	record  lease.Record // what stands afterwards; its token is 0 if nothing, or not told
}

// state is what the model knows of a name.
type state struct {
	held        bool
	session     lease.SessionID
	incarnation string
	nonce       uint64
	token       lease.Token // 0: issued in an operation of unknown outcome, not seen yet
	floor       lease.Token // tokens issued from now on are higher; so is an unseen one
}

// is tells whether the state's record may be the one with this token and nonce.
func (s state) is(token lease.Token, nonce uint64) bool {
	return s.held && s.nonce == nonce && (s.token == token || s.token == 0 && token > s.floor)
}

// shown is the state after somebody was shown its record; ok is false if it is
// not the one that stands.
func (s state) shown(r lease.Record) (next state, ok bool) {
	if r.Token == 0 {
		return s, false
	}
	if !s.is(r.Token, r.Nonce) || s.session != r.Session || s.incarnation != r.Owner.Incarnation {
		return s, false
	}
	s.token, s.floor = r.Token, max(s.floor, r.Token)
	return s, true
}

func (s state) put(by lease.Session, nonce uint64, token lease.Token) state {
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
	t   *T
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
	i, _ := slices.BinarySearchFunc(returns, 0, func(end int64, _ int) int {
		if ok, decided := linearizable(until(end)); ok || !decided {
			return -1
		}
		return 1
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
	end, said := fmt.Sprint(op.Return), "refused"
	switch {
	case out.unknown:
		end, said = "?", "unknown"
	case out.ok:
		said = "done"
	case in.kind == opGet:
		said = "seen"
	}
	what := ""
	switch in.kind {
	case opAcquire:
		what = fmt.Sprintf("acquire by %s nonce=%d supersedes=%d", in.by.Owner.ID, in.nonce, in.over)
	case opRelease:
		what = fmt.Sprintf("release token=%d nonce=%d", in.present.Token, in.present.Nonce)
	case opTransfer:
		what = fmt.Sprintf("transfer token=%d nonce=%d to %s nonce=%d", in.present.Token, in.present.Nonce, in.by.Owner.ID, in.nonce)
	case opGet:
		what = "get"
	}
	stands := "nothing stands or told"
	if out.record.Token != 0 {
		stands = fmt.Sprintf("token=%d nonce=%d of %s", out.record.Token, out.record.Nonce, out.record.Owner.ID)
	}
	return fmt.Sprintf("[%d–%s] client %d: %s → %s: %s", op.Call, end, op.ClientId, what, said, stands)
}
