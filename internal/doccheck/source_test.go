package doccheck

import (
	"io/fs"
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
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
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
	docs := 0
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "doc.go" {
			return err
		}
		docs++
		for line := range strings.Lines(read(t, file)) {
			require.Empty(t, goFile.FindString(line), "%s lists a file: %s", file, line)
		}
		return nil
	}))
	require.Greater(t, docs, 20)
}
