// Package boundary calls users' code: it turns a panic into an error, at the edge of a goroutine of
// ours, and has the logger that serves where the user gives none.
//
//	err := boundary.Contained(callback)            // f has no result
//	err = boundary.Call(store.Flush)               // f has an error
//	v, err := boundary.Get(store.Load)             // f has a value and an error
//
// Users' code is trusted to return, but for Aside, which calls what may hang. It may not end its
// goroutine (runtime.Goexit).
//
// Each goroutine has an owner, which starts it by the Go of a sync.WaitGroup and waits for it at its
// own end: by the group's Wait, or by Wait here if the goroutine may take longer than the caller
// wants to wait. A bare go statement needs a line in internal/doccheck, with the reason.
package boundary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Contain, when it is deferred, turns a panic into an error.
func Contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it panicked: %v", p)
	}
}

// Survive, when it is deferred, logs a panic: what is for people.
func Survive(log *zap.Logger, what string) {
	if p := recover(); p != nil {
		log.Error(what, zap.Any("panic", p), zap.Stack("stack"))
	}
}

// Contained runs f. The error is nil unless f panicked.
func Contained(f func()) (err error) {
	defer Contain(&err)
	f()
	return nil
}

// Call runs f. The error is f's, or says what f panicked with.
func Call(f func() error) (err error) {
	defer Contain(&err)
	return f()
}

// Get is Call for a function with a result, which is the zero value after a panic.
func Get[T any](f func() (T, error)) (v T, err error) {
	defer Contain(&err)
	return f()
}

// Aside runs f, which may hang, on a goroutine of its own, and then done there, with f's result.
func Aside[T any](f func() (T, error), done func(T, error)) { go func() { done(Get(f)) }() }

// Wait returns nil when all goroutines of g have ended, or the cause of ctx's end if that comes
// first. No goroutine of g may start meanwhile.
func Wait(ctx context.Context, g *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() { g.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Each runs f for 0 to n-1, most of them at once, and returns an error, after which none is begun.
func Each(n, most int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, n)
	for range min(n, most) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if errs[i] = f(i); errs[i] != nil {
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// Pause waits for d, or for the end of ctx, whose error it returns.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is the error of ctx, which is done, and its cause where that says more.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Burst lines of a kind may be logged at once, and then one every Every.
const (
	Every = time.Second
	Burst = 5
)

// Line limits how often one kind of line is logged. Its zero value is ready to use, and it is safe
// for concurrent use.
type Line struct {
	mu     sync.Mutex
	room   int
	since  time.Duration // when room grew last
	began  bool
	missed int
}

// Open reports whether a line may be logged now, and how many were left out since the last one. now
// is a reading of any clock that does not go back.
func (l *Line) Open(now time.Duration) (missed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began {
		l.began, l.room, l.since = true, Burst, now
	}
	if n := (now - l.since) / Every; n > 0 {
		l.room, l.since = int(min(time.Duration(l.room)+n, Burst)), l.since+n*Every
	}
	if l.room == 0 {
		l.missed++
		return 0, false
	}
	l.room--
	missed, l.missed = l.missed, 0
	return missed, true
}

// Warn logs a line that may be logged now, with how many were left out since the last (missed).
func (l *Line) Warn(log *zap.Logger, now time.Duration, text string, fields ...zap.Field) {
	if missed, ok := l.Open(now); ok {
		log.Warn(text, append(fields, zap.Int("missed", missed))...)
	}
}

// Do is the field of a line that says what to do about it, where one would not know.
func Do(what string) zap.Field { return zap.String("do", what) }

// most bounds what Cut returns, in bytes.
const most = 128

// Cut shortens a text that a peer chose, for a log.
func Cut(s string) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

var defaultLogger = ToSlog(slog.Default, zapcore.WarnLevel)

// Default is the logger where the user gives none. It passes warnings and errors on to the
// slog.Default() of that moment.
func Default() *zap.Logger { return defaultLogger }

// ToSlog returns a logger that passes lines of a level, and of those above, on to what to returns at
// that moment.
func ToSlog(to func() *slog.Logger, least zapcore.Level) *zap.Logger {
	return zap.New(&slogCore{to: to, least: least})
}

// slogCore is a zapcore.Core over package slog.
type slogCore struct {
	to     func() *slog.Logger
	least  zapcore.Level
	fields []zapcore.Field
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l >= c.least && c.to().Enabled(context.Background(), slogLevel(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{c.to, c.least, append(slices.Clip(c.fields), fields...)}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write turns fields into attributes, in their order. Nested fields stay nested.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	text := e.Message
	if e.LoggerName != "" {
		text = e.LoggerName + ": " + text
	}
	r := slog.NewRecord(e.Time, slogLevel(e.Level), text, e.Caller.PC)
	for _, f := range append(slices.Clip(c.fields), fields...) {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for key, v := range m.Fields {
			if !strings.HasSuffix(key, "Verbose") || key == f.Key { // an error's own trace
				r.AddAttrs(slog.Any(key, v))
			}
		}
	}
	return c.to().Handler().Handle(context.Background(), r)
}

func (c *slogCore) Sync() error { return nil }

// slogLevel is l for slog, whose levels are four apart.
func slogLevel(l zapcore.Level) slog.Level { return 4 * slog.Level(min(l, zapcore.ErrorLevel)) }
