// Package cases runs the cases of a conformance kit.
package cases

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TB is what a kit needs of a test; *testing.T is one.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	FailNow()
	Failed() bool
	Cleanup(func())
	Context() context.Context
	TempDir() string
}

// IsAny tells whether err is one of these.
func IsAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}

// Set holds the bits that are true.
func Set[N ~uint32](has map[N]bool) (all N) {
	for bit, yes := range has {
		if yes {
			all |= bit
		}
	}
	return all
}

// Choose splits the cases into those to run and those left out. It does not name cases for stores
// that lack something (without).
func Choose[C interface{ What() (string, N) }, N ~uint32](all []C, has, without N) (run []C, left []string) {
	for _, c := range all {
		switch name, needs := c.What(); {
		case needs&^has == 0:
			run = append(run, c)
		case needs&without == 0:
			left = append(left, name)
		}
	}
	return run, left
}

// Select is Choose, and logs which cases are left out, and the names of the bits that are lacking.
func Select[C interface{ What() (string, N) }, N ~uint32](t TB, all []C, has, without N, names []string) []C {
	run, left := Choose(all, has, without)
	var lacks []string
	for i, name := range names {
		if has&(1<<i) == 0 {
			lacks = append(lacks, name)
		}
	}
	if len(left) > 0 {
		t.Logf("LEFT OUT, as there is no %s: %s", strings.Join(lacks, ", no "), strings.Join(left, " "))
	}
	return run
}

// Bubble runs f on fake or on real time. A bubble does not allow t.Run, so each case has its
// own. It lasts a second longer than f, for requests of a store that still sleep.
func Bubble(t *testing.T, fake bool, f func(*testing.T)) {
	if fake {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Second) }) // the last of all
			f(t)
		})
		return
	}
	f(t)
}

var constant = regexp.MustCompile(`(?m)^\t(\w+) +\w+ = "(.*)"$`)

// Constants are the string constants of a file of the package that is tested, of a type of their
// own: the rules of a kit.
func Constants(t *testing.T, file string) map[string]string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, m := range constant.FindAllSubmatch(text, -1) {
		all[string(m[1])] = string(m[2])
	}
	return all
}
