//go:build linux

package stage

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Now reads the one monotonic clock of the process.
func Now() time.Duration { return lease.SystemClock().Now().Mono }

// Perform lets a run happen, ends what is left of it, and judges it; then it closes
// the timeline. tearDown is told whether there is no error yet. An error means that
// there is no verdict.
func Perform[E any](t *Timeline, setUp func() error, play func() (E, error), tearDown func(wellSoFar bool) error, judge func(E) Verdict) (v Verdict, err error) {
	var evidence E
	err = setUp()
	if err == nil {
		evidence, err = play()
	}
	err = errors.Join(err, tearDown(err == nil))
	if err == nil {
		v = judge(evidence)
		t.put("\n" + v.String())
	}
	if failed := t.Close(); err == nil {
		err = failed
	}
	return v, err
}

// Until polls cond, every so often, for at most the given time.
func Until(most, every time.Duration, cond func() bool) bool {
	for end := time.Now().Add(most); ; time.Sleep(every) {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
