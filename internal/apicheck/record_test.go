package apicheck

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var update = flag.Bool("update", false, "write down what is exported now")

// TestAPI: api lists what is exported, and CHANGELOG.md names what has gone or changed since
// the last release.
func TestAPI(t *testing.T) {
	now := exported(t)
	if *update {
		require.NoError(t, os.RemoveAll(filepath.Join(root, "api")))
		for file, lines := range now {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
		}
	}
	listed, err := readLists(os.DirFS(root))
	require.NoError(t, err)
	require.Equal(t, now, listed, "if this change of the API is intended: go test ./internal/apicheck -update")
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	broken, err := unnamed(root, now, string(changes))
	require.NoError(t, err)
	require.Empty(t, broken, "gone or changed since the last release, and not named under \"## Unreleased\" of CHANGELOG.md")
}

var (
	plain  = regexp.MustCompile(`^(?:func|var|const|type) (\w+)`)
	member = regexp.MustCompile(`^(?:field |method \(\*?)(\w+)\)?[. ](\w+)`)
)

// unnamed returns the names of the lines that the lists of the last release of the repository
// in dir have beyond now, and changes does not name in backticks under "## Unreleased": the
// name itself, or that of its type.
func unnamed(dir string, now map[string][]string, changes string) ([]string, error) {
	release, err := LastRelease(dir)
	if err != nil || release == "" {
		return nil, err
	}
	released, err := git(dir, "grep", "-I", "", release, "--", "api")
	if err != nil {
		return nil, err
	}
	_, changes, _ = strings.Cut("\n"+changes, "\n## Unreleased\n")
	changes, _, _ = strings.Cut(changes, "\n## ")
	var names []string
	for line := range strings.Lines(released) {
		file, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), release+":"), ":")
		if slices.Contains(now[file], text) {
			continue
		}
		path := strings.TrimSuffix(strings.TrimPrefix(file, "api/"), ".txt")
		name, of := text, text
		if m := plain.FindStringSubmatch(text); m != nil {
			name, of = path+"."+m[1], path+"."+m[1]
		} else if m := member.FindStringSubmatch(text); m != nil {
			name, of = path+"."+m[1]+"."+m[2], path+"."+m[1]
		}
		if !strings.Contains(changes, "`"+name+"`") && !strings.Contains(changes, "`"+of+"`") {
			names = append(names, name)
		}
	}
	return names, nil
}
