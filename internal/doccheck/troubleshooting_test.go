package doccheck

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var troubleRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestTroublesAreTexts: what the page explains is what the code says, word for word.
func TestTroublesAreTexts(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"backends", "hosting", "internal", "lease", "membership", "node", "partition", "remoting", "sharding", "singleton"} {
		for _, file := range sources(t, dir) {
			for line := range strings.Lines(read(t, file)) {
				code, _, _ := strings.Cut(line, "// ") // what is said, not what is said of it
				source.WriteString(code)
			}
		}
	}
	rows := troubleRow.FindAllStringSubmatch(read(t, root+"/docs/troubleshooting.md"), -1)
	require.Greater(t, len(rows), 30)
	for _, m := range rows {
		require.True(t, strings.Contains(source.String(), m[1]), "no code says %q", m[1])
	}
}
