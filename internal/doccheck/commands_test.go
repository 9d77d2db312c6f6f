package doccheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	goCommand = regexp.MustCompile("\\bgo (?:run|test|build) [^`\n#]*")
	inFolder  = regexp.MustCompile(`-C (\S+)`)
	argument  = regexp.MustCompile(`(?:^|\s)\./([a-z0-9/_-]+)`)
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	scenario  = regexp.MustCompile(`^go run -C lab \. run ([a-z]+)`)
)

// TestCommandsNameWhatExists: packages in commands of pages are there, and so are scenarios and the
// tests that pages name. A command without -C may be meant for any module.
func TestCommandsNameWhatExists(t *testing.T) {
	var modules []string
	var lab, tests strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Name() == "go.mod" {
			modules = append(modules, filepath.Dir(file))
		}
		if strings.HasSuffix(file, "_test.go") {
			for line := range strings.Lines(read(t, file)) {
				if strings.HasPrefix(line, "func ") {
					tests.WriteString(line)
				}
			}
		}
		if strings.HasPrefix(file, root+"/lab/") && strings.HasSuffix(file, ".go") {
			lab.WriteString(read(t, file))
		}
		return nil
	}))
	commands := 0
	for _, page := range documents(t) {
		if strings.Contains(page, "/lab/reports/") {
			continue
		}
		for _, name := range testName.FindAllString(read(t, page), -1) {
			require.True(t, strings.Contains(tests.String(), "func "+name), "%s names %s", page, name)
		}
		for _, command := range goCommand.FindAllString(strings.ReplaceAll(read(t, page), "\n   ", " "), -1) {
			in := modules
			if m := inFolder.FindStringSubmatch(command); m != nil {
				in = []string{filepath.Join(root, m[1])}
			}
			for _, m := range argument.FindAllStringSubmatch(command, -1) {
				commands++
				require.True(t, isIn(in, m[1]), "%s: %s: there is no %s", page, command, m[1])
			}
			if m := scenario.FindStringSubmatch(command); m != nil {
				commands++
				require.True(t, strings.Contains(lab.String(), `"`+m[1]+`"`), "%s: %s: there is no such scenario", page, command)
			}
		}
	}
	require.Greater(t, commands, 20)
}

// isIn reports whether one of the folders has the package.
func isIn(folders []string, pkg string) bool {
	for _, folder := range folders {
		if info, err := os.Stat(filepath.Join(folder, pkg)); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}
