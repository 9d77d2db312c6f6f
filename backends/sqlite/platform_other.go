//go:build !linux

package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

var errNoLinux = fmt.Errorf("%w: on %s; it needs Linux, for a clock that the machine's processes share",
	store.ErrUnsupported, runtime.GOOS)

func machineClock() (clock, error) { return clock{}, errNoLinux }

func doze(time.Duration) {}

// place is nowhere.
type place struct{ path, file string }

func locate(string) (*place, error) { return nil, errNoLinux }

func (*place) join(context.Context, func(begin bool, id string) (string, error)) error {
	return errNoLinux
}
func (*place) look() (string, error) { return "", errNoLinux }
func (*place) replaced() error       { return errNoLinux }
func (*place) leave()                {}
