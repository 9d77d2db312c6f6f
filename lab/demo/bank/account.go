//go:build linux

package bank

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// withdraw and deposit are the halves of a transfer, answered with a receipt; one
// that is sent again has the same number. They are plain Go values; registering
// them lets them travel between nodes.
type (
	withdraw struct{ Transfer, Amount int }
	deposit  struct{ Transfer, Amount int }
	receipt  struct{ Balance int }
)

// memo is a line for the account's statement. It is told, not asked: sent once,
// and not answered.
type memo struct{ Number int }

// register makes the types known. Every node of a cluster must do so.
func register() error {
	return errors.Join(
		remoting.Register[withdraw]("example.withdraw"),
		remoting.Register[deposit]("example.deposit"),
		remoting.Register[receipt]("example.receipt"),
		remoting.Register[memo]("example.memo"))
}

// writer is who writes to the ledger: an account, on the node that hosts its shard
// under a token.
type writer struct {
	Node    string
	Account string
	Shard   string // the name of its lease
	Token   lease.Token
}

// ledger is the resource that accounts work on. Who comes with a token lower than
// one that was seen for the shard is refused with lease.ErrStale.
type ledger interface {
	// open advances the fence of the shard to the token, and then returns the
	// account's balance.
	open(writer) (balance int, err error)
	// post writes down a change of the balance, and what it is then. One of that id
	// that was written before changes nothing: new is false.
	post(w writer, id string, amount, balance int) (new bool, err error)
	note(w writer, number int) error
}

// account is the entity: one value for each life.
type account struct {
	node    string
	ledger  ledger
	midWork func(what string) // called in the middle of work: where a kill strikes
	say     func(format string, args ...any)

	self    writer
	balance int
	over    bool // the shard is another's
}

// Receive implements actor.Actor. It runs only for messages that passed the gate.
// What the gate can't stop, a handler that is running when the lease ends, is
// stopped by the ledger: everything is written under the token.
func (a *account) Receive(ctx actor.Context) {
	if a.over {
		return
	}
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		e, ok := sharding.Of(ctx)
		if !ok {
			panic("an account must run as an entity")
		}
		a.self = writer{a.node, e.ID(), e.Name(), e.Token()}
		a.midWork("")
		// First advance the fence, only then read: from here on no predecessor
		// changes what was read.
		balance, err := a.ledger.open(a.self)
		a.balance = balance
		a.check("opening", err)
	case withdraw:
		a.midWork(fmt.Sprintf("withdrawal %d", msg.Transfer))
		a.post(ctx, withdrawalID(msg.Transfer), -msg.Amount)
	case deposit:
		a.midWork("")
		a.post(ctx, depositID(msg.Transfer), msg.Amount)
	case memo:
		a.midWork("")
		a.check("a memo", a.ledger.note(a.self, msg.Number))
	}
}

func withdrawalID(transfer int) string { return fmt.Sprintf("%d-out", transfer) }
func depositID(transfer int) string    { return fmt.Sprintf("%d-in", transfer) }

// post does one half of a transfer. What was done before, and is asked for again
// since the receipt did not arrive, is answered only.
func (a *account) post(ctx actor.Context, id string, amount int) {
	next := a.balance + amount
	isNew, err := a.ledger.post(a.self, id, amount, next)
	if !a.check(id, err) {
		return // not done, so not answered
	}
	if isNew {
		a.balance = next
	}
	ctx.Respond(receipt{a.balance})
}

// check takes what the ledger said. If the token was stale, this life is over. If
// the ledger could not be reached it is not known what was written: the entity is
// started anew, and reads anew.
func (a *account) check(what string, err error) bool {
	switch {
	case err == nil:
		return true
	case !errors.Is(err, lease.ErrStale):
		panic(fmt.Errorf("%s: writing %s: %w", a.self.Account, what, err))
	}
	a.over = true
	a.say("%s: its write of %s is refused: %v", a.self.Account, what, err)
	return false
}
