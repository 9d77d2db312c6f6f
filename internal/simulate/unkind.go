package simulate

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// UnkindLoggers plays f in a bubble of its own with each logger that may be a user's: at records
// that at picks it panics, ends its goroutine, or does not return before f has.
func UnkindLoggers(t *testing.T, at func(slog.Record) bool, f func(t *testing.T, l *slog.Logger)) {
	for what, fail := range map[string]func(release chan struct{}){
		"panics":             func(chan struct{}) { panic("a logger's bug") },
		"ends the goroutine": func(chan struct{}) { runtime.Goexit() },
		"hangs":              func(release chan struct{}) { <-release },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer func() { close(release); time.Sleep(2 * time.Second) }()
				f(t, slog.New(unkind{slog.DiscardHandler, at, func() { fail(release) }}))
			})
		})
	}
}

type unkind struct {
	slog.Handler
	at   func(slog.Record) bool
	fail func()
}

func (unkind) Enabled(context.Context, slog.Level) bool { return true }
func (u unkind) WithAttrs([]slog.Attr) slog.Handler     { return u }

func (u unkind) Handle(_ context.Context, r slog.Record) error {
	if u.at(r) {
		u.fail()
	}
	return nil
}

// Warnings picks records of slog.LevelWarn and above.
func Warnings(r slog.Record) bool { return r.Level >= slog.LevelWarn }
