package cases

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Recorder is a TB that keeps what a case says. It lets cases run at once
// without the bound of -parallel, since all they do is wait; and it lets the
// kit test itself.
type Recorder struct {
	TB   // for its Context and TempDir
	name string

	NoVerdict atomic.Bool // the case could not tell
	Verdict   atomic.Bool // before all else that failed, a rule was broken, or something panicked

	mu       sync.Mutex
	lines    []line
	failed   bool
	cleanups []func()
}

type line struct {
	text    string
	failure bool
}

// Record runs f to its end, cleanups included, on a goroutine of its own.
func Record(parent TB, name string, f func(TB)) *Recorder {
	r := &Recorder{TB: parent, name: name}
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
func (r *Recorder) alone(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Judged()
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// Judged notes that what fails now is what the case was for, unless something
// else failed before: then it may be no more than a consequence.
func (r *Recorder) Judged() {
	if !r.Failed() {
		r.Verdict.Store(true)
	}
}

// Replay tells t what was recorded.
func (r *Recorder) Replay(t TB) {
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

// Failures are the messages of what failed.
func (r *Recorder) Failures() (all []string) {
	for _, l := range r.lines {
		if l.failure {
			all = append(all, l.text)
		}
	}
	return all
}

func (r *Recorder) Helper()      {}
func (r *Recorder) Name() string { return r.name }

func (r *Recorder) say(failure bool, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failure
	r.lines = append(r.lines, line{text: fmt.Sprintf(format, args...), failure: failure})
}

func (r *Recorder) Logf(format string, args ...any)   { r.say(false, format, args) }
func (r *Recorder) Errorf(format string, args ...any) { r.say(true, format, args) }

func (r *Recorder) Fatalf(format string, args ...any) {
	r.say(true, format, args)
	runtime.Goexit()
}

func (r *Recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *Recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *Recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
