package faultstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// ErrInjected is every error that this package makes up.
var ErrInjected = errors.New("injected store fault")

// Op is a method of a store.
type Op uint8

// The methods of store.Store, store.Transferrer and store.Watcher. ListSession is a List of the
// records of one session.
const (
	OpenSession Op = iota + 1
	CloseSession
	Acquire
	Renew
	Release
	Transfer
	Get
	List
	Watch
	ListSession
	ops // one more than the last
)

var opNames = [ops]string{
	"none", "OpenSession", "CloseSession", "Acquire", "Renew",
	"Release", "Transfer", "Get", "List", "Watch", "ListSession",
}

func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Call is what a rule knows of a call.
type Call struct {
	Op Op
	// Names are those that the call is about; for List and Watch the prefix; nil
	// for calls about sessions.
	Names []string
	// Session is the caller's session, for OpenSession, CloseSession, ListSession and
	// Acquire, and for Renew the first of Sessions; else 0.
	Session store.SessionID
	// Sessions are all that a Renew is about; else nil.
	Sessions []store.SessionID
}

// Kind is what a Fault does to a call.
type Kind uint8

const (
	// None passes the call on.
	None Kind = iota
	// Delay passes the call on after Fault.Delay; never, if the context ends
	// before.
	Delay
	// Drop never passes the call on; the caller gets an error.
	Drop
	// ApplyThenFail passes the call on; the caller gets an error whatever came
	// of it.
	ApplyThenFail
	// ReplyLate passes the call on at once; the caller gets the answer after
	// Fault.Delay, or an error if the context ends before.
	ReplyLate
	// LandLate gives the caller an error; the call is passed on Fault.Delay after
	// it was sent, with a context that has the caller's values but no end. A
	// partition does not hold it up: it is on its way.
	LandLate
	// Deny never passes the call on; the caller gets an error that is store.ErrDenied, too,
	// at once.
	Deny
)

var kindNames = [...]string{"none", "delay", "drop", "apply then fail", "reply late", "land late", "deny"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Fault is what befalls one call. The zero value is no fault.
type Fault struct {
	Kind Kind
	// Delay is for the kinds Delay, ReplyLate and LandLate; none if not positive.
	Delay time.Duration
	// Hang makes the error of Drop, ApplyThenFail and LandLate come when the
	// caller's context ends, as from a peer that fell silent; else it comes at
	// once. A context without an end then waits for ever.
	Hang bool
}
