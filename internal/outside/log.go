package outside

import "log/slog"

// Log has f called with the system's logger, which is the user's: behind what was logged before,
// on a goroutine that it may hold up or end. Nothing waits for it. What is beyond a limit, as the
// logger is slow, is counted and left out.
func (w *World) Log(f func(*slog.Logger)) { w.lines.Tell(func() { f(w.system.Logger()) }) }

// lost tells of lines that were left out.
func (w *World) lost(n int) {
	w.system.Logger().Warn("lines were dropped: the logger is too slow, or panicked", slog.Int("count", n))
}
