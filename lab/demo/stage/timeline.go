//go:build linux

package stage

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Timeline prints what happens: seconds, node, event. Lines are written by one
// goroutine, since those who have something to say must not wait for a writer;
// of more than a buffer holds, the rest is left out.
type Timeline struct {
	start time.Duration
	lines chan string
	ended chan struct{}
	err   error // of the writer; set before ended is closed

	mu     sync.Mutex
	closed bool
}

// NewTimeline starts a timeline at the present time.
func NewTimeline(w io.Writer) *Timeline {
	t := &Timeline{start: Now(), lines: make(chan string, 1024), ended: make(chan struct{})}
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

// Say adds a line, stamped with the present time.
func (t *Timeline) Say(node, format string, args ...any) {
	t.put(fmt.Sprintf("%8.3fs  %-7s %s\n", (Now() - t.start).Seconds(), node, fmt.Sprintf(format, args...)))
}

func (t *Timeline) put(line string) {
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
func (t *Timeline) Sync() error { return nil }

// Write implements zapcore.WriteSyncer: one line of a logger's.
func (t *Timeline) Write(line []byte) (int, error) {
	node, text, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
	t.Say(node, "  | %s", strings.ReplaceAll(text, "\t", "  "))
	return len(line), nil
}

// Logger returns the logger of a node: into the timeline, or nowhere.
func (t *Timeline) Logger(node string, verbose bool) *zap.Logger {
	if !verbose {
		return zap.NewNop()
	}
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{NameKey: "node", MessageKey: "message",
		EncodeName: zapcore.FullNameEncoder, EncodeDuration: zapcore.StringDurationEncoder})
	return zap.New(zapcore.NewCore(enc, t, zapcore.DebugLevel)).Named(node)
}

// Close writes what is left and returns the writer's first error. What is said
// later is left out.
func (t *Timeline) Close() error {
	t.mu.Lock()
	t.closed = true
	close(t.lines)
	t.mu.Unlock()
	<-t.ended
	return t.err
}
