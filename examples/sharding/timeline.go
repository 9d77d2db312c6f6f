package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// timeline prints what happens: seconds, node, event. Lines are written by one
// goroutine, since those who have something to say must not wait for a writer;
// of more than a buffer holds, the rest is left out.
type timeline struct {
	start time.Duration
	lines chan string
	ended chan struct{}
	err   error // of the writer; set before ended is closed

	mu     sync.Mutex
	closed bool
}

func newTimeline(w io.Writer) *timeline {
	t := &timeline{start: now(), lines: make(chan string, 1024), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for line := range t.lines {
			if _, err := io.WriteString(w, line); err != nil && t.err == nil {
				t.err = err
			}
		}
	}()
	return t
}

// say adds a line, stamped with the present time.
func (t *timeline) say(node, format string, args ...any) {
	t.put(fmt.Sprintf("%8.3fs  %-7s %s\n", (now() - t.start).Seconds(), node, fmt.Sprintf(format, args...)))
}

func (t *timeline) put(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	select {
	case t.lines <- line:
	default:
	}
}

// Sync implements zapcore.WriteSyncer.
func (t *timeline) Sync() error { return nil }

// Write implements zapcore.WriteSyncer: one line of a logger's.
func (t *timeline) Write(line []byte) (int, error) {
	node, text, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
	t.say(node, "  | %s", strings.ReplaceAll(text, "\t", "  "))
	return len(line), nil
}

// logger returns the logger of a node: into the timeline, or nowhere.
func (t *timeline) logger(node string, verbose bool) *zap.Logger {
	if !verbose {
		return zap.NewNop()
	}
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{NameKey: "node", MessageKey: "message",
		EncodeName: zapcore.FullNameEncoder, EncodeDuration: zapcore.StringDurationEncoder})
	return zap.New(zapcore.NewCore(enc, t, zapcore.DebugLevel)).Named(node)
}

// close writes what is left and returns the writer's first error. What is said
// later is left out.
func (t *timeline) close() error {
	t.mu.Lock()
	t.closed = true
	close(t.lines)
	t.mu.Unlock()
	<-t.ended
	return t.err
}
