package doccheck

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bare is what may run code of users on the goroutine that says it: subscribers of the
// EventStream, of dead letters above all, and mailboxes.
var bare = regexp.MustCompile(`[Rr]oot\.(Send|Request|RequestWithCustomSender|Stop|Poison)\(|DeadLetter\.(Send|Stop)|EventStream\.Publish\(|ctx\.(Send|Respond|Request|Forward)\(`)

// contained are the lines that do it nevertheless, in a way that contains it.
var contained = map[string]int{
	"internal/actors/actors.go":  1, // by Outlet.Do of who makes links
	"internal/transport/peer.go": 1, // a panic is logged, and the next message sent
	"internal/transport/node.go": 1, // by publish
	"remoting/deliver.go":        1, // a panic is logged, and the next message delivered
}

// TestMailTellsUsersByTheOutlet: what carries mail runs on goroutines that all mail of a
// node depends on, and that end the process if they panic. It tells users something by
// way of internal/outlet.
func TestMailTellsUsersByTheOutlet(t *testing.T) {
	found := map[string]int{}
	for _, dir := range []string{"remoting", "internal/actors", "internal/asker", "internal/gate", "internal/handover",
		"internal/reply", "internal/route", "internal/transport", "internal/wire"} {
		for _, file := range sources(t, dir) {
			for line := range strings.Lines(read(t, file)) {
				code, _, _ := strings.Cut(line, "//")
				if n := len(bare.FindAllString(code, -1)); n > 0 {
					found[dir+"/"+filepath.Base(file)] += n
				}
			}
		}
	}
	require.Equal(t, contained, found)
}

var goFile = regexp.MustCompile(`\b[a-z_]+\.go\b`)

// TestPackageDocsListNoFiles: a map of its own files is for who changes a package, and
// goes stale; its documentation is for who uses it.
func TestPackageDocsListNoFiles(t *testing.T) {
	for _, file := range files(t, ".", "/doc.go") {
		for line := range strings.Lines(read(t, file)) {
			require.Empty(t, goFile.FindString(line), "%s lists a file: %s", file, line)
		}
	}
}
