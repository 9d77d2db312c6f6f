//go:build !linux

package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

func machineClock() (clock, error) {
	return clock{}, fmt.Errorf("%w: on %s; it needs Linux, for a clock that the machine's processes share",
		lease.ErrUnsupported, runtime.GOOS)
}

func doze(d time.Duration) { time.Sleep(d) }

// place is nowhere.
type place struct{ path string }

func locate(string) (*place, error) {
	_, err := machineClock()
	return nil, err
}

func (*place) join(context.Context, func(begin bool, id string) (string, error)) error {
	_, err := machineClock()
	return err
}

func (*place) look() (file fmt.Stringer, err error) {
	_, err = machineClock()
	return nil, err
}

func (*place) replaced() error { return nil }
func (*place) leave()          {}
