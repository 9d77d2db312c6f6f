//go:build unix

package postgrestest

import (
	"io"
	"os"
	"strings"
	"testing"
)

// What a failure shows of a log: enough for its reader, and not so much that it buries the failure.
const (
	tailLines = 20
	tailWidth = 240
)

func (g *group) showLogs(tb testing.TB) {
	tb.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.servers {
		tb.Logf("postgrestest: the last warnings of %s:\n%s", s.name, tail(s.log))
	}
	for _, b := range g.bouncers {
		tb.Logf("postgrestest: the last lines of %s:\n%s", b.name, tail(b.log))
	}
}

// tail is the end of a log, without what is only informative.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 256 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // from the start, then: longer, but no less
	}
	log, _ := io.ReadAll(io.LimitReader(f, 2*most)) // whatever there is
	var lines []string
	for line := range strings.Lines(string(log)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.Contains(line, "STATEMENT: ") {
			continue
		}
		if len(line) > tailWidth {
			line = strings.ToValidUTF8(line[:tailWidth], "") + " …"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
