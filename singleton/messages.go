package singleton

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// What a manager tells itself. All else that arrives is mail for the child.
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
	childDone    struct{ gate *gate.Gate }
	diverted     struct {
		gate     *gate.Gate
		envelope any
	}
	stillRunning struct {
		gate        *gate.Gate
		since, next time.Duration
	}
	hostNoticed struct {
		record lease.Record
		known  bool
	}
	leaderNoticed struct{ leaderChanged }
	lingerEnded   struct{}
	glowEnded     struct{}
	stopRequest   struct{}
	resumeRequest struct{}
)

// flushMark is posted behind a child's mail when the child is done: when it
// comes back diverted, so has everything before it.
type flushMark struct{}

// holderFound answers lookUp; holderStale says to look again.
type (
	holderFound struct {
		record lease.Record
		known  bool
	}
	holderStale struct{}
)
