package lease

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// This file calls loggers and meters. They are code of the user's: they may block,
// panic, or call the Keeper back. So what is logged and measured is put down, with
// the lock held or not, and told by a goroutine that nothing waits for.

// maxUntold bounds what waits to be told; what comes on top of it is dropped, and
// told of as a number.
const maxUntold = 10_000

// teller calls functions, in the order they came, one at a time.
type teller struct {
	lost func(n int) // told, by the teller, of how many were dropped or panicked

	mu      sync.Mutex
	queue   []func()
	dropped int
	idle    chan struct{} // closed when nothing is left to tell; nil: that is so
}

func (t *teller) tell(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= maxUntold {
		t.dropped++
		return
	}
	t.queue = append(t.queue, f)
	if t.idle == nil {
		t.idle = make(chan struct{})
		go t.run()
	}
}

// run tells what there is, and ends. If a function ends its goroutine, another goes on.
func (t *teller) run() {
	var f func()
	var counts bool // if f comes to no good, that is told of
	defer func() {
		if f != nil {
			t.drop(counts)
			go t.run()
		}
	}()
	for f, counts = t.next(); f != nil; f, counts = t.next() {
		if !survives(f) {
			t.drop(counts)
		}
	}
}

func (t *teller) drop(counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if counts {
		t.dropped++
	}
}

// next returns what is to be told next, once there is room again also of how many
// were dropped; nil, and the goroutine's end, when there is nothing.
func (t *teller) next() (f func(), counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch dropped := t.dropped; {
	case dropped > 0 && len(t.queue) <= maxUntold/2:
		t.dropped = 0
		return func() { t.lost(dropped) }, false // once is enough
	case len(t.queue) > 0:
		f, t.queue = t.queue[0], t.queue[1:]
		return f, true
	}
	t.queue = nil
	close(t.idle)
	t.idle = nil
	return nil, false
}

// survives calls f, and is false if that panicked.
func survives(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return true
}

// told waits until all is told that came before, or ctx is done.
func (t *teller) told(ctx context.Context) {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// DetachedLogger returns a logger that passes on to l what it is given, by a goroutine
// of its own and in order, so that an l that blocks, panics or calls back holds nothing
// up. Lines that l does not keep up with are dropped, and counted. It is for stores,
// whose calls must not wait for a log; a nil l is DefaultLogger().
func DetachedLogger(l *zap.Logger) *zap.Logger {
	if l == nil {
		l = DefaultLogger()
	}
	detached, _ := tellingLogger(l)
	return detached
}

// tellingLogger returns a logger that passes on to l what it is given, by a teller.
func tellingLogger(l *zap.Logger) (*zap.Logger, *teller) {
	t := &teller{lost: func(n int) {
		l.Warn("lines were dropped: the logger is too slow, or panicked", zap.Int("count", n))
	}}
	floor := zapcore.DebugLevel // what l takes may change at any time
	switch core := l.Core(); core {
	case zapcore.NewNopCore():
		floor = zapcore.InvalidLevel
	case DefaultLogger().Core():
		floor = defaultLevel
	}
	return l.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return tellingCore{core, floor, t} })), t
}

// tellingCore is a zapcore.Core that lets a teller call another.
type tellingCore struct {
	zapcore.Core
	floor zapcore.Level
	t     *teller
}

func (c tellingCore) Enabled(l zapcore.Level) bool { return l >= c.floor }

func (c tellingCore) With(fields []zapcore.Field) zapcore.Core {
	c.Core = zapcore.NewLazyWith(c.Core, fields)
	return c
}

func (c tellingCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write has the core that was wrapped decide, and write.
func (c tellingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.t.tell(func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.Write(fields...)
		}
	})
	return nil
}

// Sync does nothing: who syncs is the user, with the logger that is wrapped.
func (c tellingCore) Sync() error { return nil }

// counter and histogram are instruments that a teller calls. What is measured
// counts also if the Keeper has ended meanwhile.
type (
	counter struct {
		to interface {
			Add(ctx context.Context, n int64, opts ...metric.AddOption)
		}
		t *teller
	}
	histogram struct {
		to metric.Float64Histogram
		t  *teller
	}
)

func (c counter) Add(n int64, opts ...metric.AddOption) {
	c.t.tell(func() { c.to.Add(context.Background(), n, opts...) })
}

func (h histogram) Record(v float64, opts ...metric.RecordOption) {
	h.t.tell(func() { h.to.Record(context.Background(), v, opts...) })
}
