package singleton

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// What a manager tells itself. All else that arrives is mail for the child, or
// from another manager (package wire).
type (
	leaderChanged = membership.LeaderChanged

	acquired struct {
		won bool
		err error
	}
	lossNoticed  struct{}
	freeNoticed  struct{ number int }
	backoffEnded struct{ number int }
	releaseEnded struct{ err error }
	announced    struct {
		over  chan struct{} // of the announcement
		token lease.Token
	}
	childMade struct {
		of  *making
		err error
	}
	makingLate  struct{ of *making }
	stillMaking struct {
		of   *making
		next time.Duration
	}
	childDone struct{ gate *gate.Gate }
	diverted  struct {
		gate     *gate.Gate
		envelope any
	}
	stillRunning struct {
		gate        *gate.Gate
		since, next time.Duration
	}
	deadlinePassed struct{ gate *gate.Gate }
	stopMade       struct {
		gate    *gate.Gate
		message any
		err     error
	}
	yieldEnded  struct{ gate *gate.Gate }
	hostNoticed struct {
		record lease.Record
		known  bool
		reset  bool // what was told before is of no account: the store's history went back
	}
	nextFound struct {
		record lease.Record
		heard  int           // of the host, when it was asked for
		moved  time.Duration // and when this node had handed over
	}
	leaderNoticed struct{ leaderChanged }
	leaderSettled struct{ number int }
	followFailed  struct{ err error }
	followDue     struct{}
	peerGone      struct{ address string }
	lingerEnded   struct{}
	quietEnded    struct{ number int }
	stopRequest   struct{}
	resumeRequest struct{}
	routeDue      struct{ number int }
	linked        struct{ address string } // the channel to address has room again
	cameBack      struct {
		address string
		kept    []any // that no node took
	}
)

// flushMark is posted behind a child's mail when the child is done: when it
// comes back diverted, so has everything before it.
type flushMark struct{}

// holderFound answers lookUp; holderStale says to look again.
type (
	holderFound struct {
		record lease.Record
		known  bool
		err    error
	}
	holderStale struct{}
)

// Of a hand-over.
type (
	transferEnded struct{ err error }
	due           struct{ do func() } // what package handover put off
	sent          struct{ what *handover.Sending }
	introduceDue  struct{}
)
