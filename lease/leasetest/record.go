package leasetest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// recorder is a TB that keeps what a case says. It lets cases run at once
// without the bound of -parallel, since all they do is wait; and it lets the
// kit test itself.
type recorder struct {
	TB   // for its Context and TempDir
	name string

	noVerdict atomic.Bool // the case could not tell
	verdict   atomic.Bool // before all else that failed, a rule was broken, or something panicked

	mu       sync.Mutex
	lines    []line
	failed   bool
	cleanups []func()
}

type line struct {
	text    string
	failure bool
}

// record runs f to its end, cleanups included, on a goroutine of its own.
func record(parent TB, name string, f func(TB)) *recorder {
	r := &recorder{TB: parent, name: name}
	r.alone(func() { f(r) })
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return r
		}
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		r.alone(cleanup)
	}
}

// alone runs f where FailNow ends nothing else, and a panic is a failure.
func (r *recorder) alone(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.judged()
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// judged notes that what fails now is what the case was for, unless something
// else failed before: then it may be no more than a consequence.
func (r *recorder) judged() {
	if !r.Failed() {
		r.verdict.Store(true)
	}
}

// replay tells t what was recorded.
func (r *recorder) replay(t TB) {
	t.Helper()
	for _, l := range r.lines {
		if l.failure {
			t.Errorf("%s", l.text)
		} else {
			t.Logf("%s", l.text)
		}
	}
	if r.failed && !t.Failed() {
		t.FailNow()
	}
}

// failures are the messages of what failed.
func (r *recorder) failures() (all []string) {
	for _, l := range r.lines {
		if l.failure {
			all = append(all, l.text)
		}
	}
	return all
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

func (r *recorder) say(failure bool, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failure
	r.lines = append(r.lines, line{text: fmt.Sprintf(format, args...), failure: failure})
}

func (r *recorder) Logf(format string, args ...any)   { r.say(false, format, args) }
func (r *recorder) Errorf(format string, args ...any) { r.say(true, format, args) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.say(true, format, args)
	runtime.Goexit()
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
