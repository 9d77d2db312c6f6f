package apicheck

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root    = "../.."
	records = root + "/api"
	mark    = "- " // before a line that was removed since the last release
)

var (
	update  = flag.Bool("update", false, "write down what is exported now; what is gone stays, marked as removed")
	release = flag.Bool("release", false, "like -update, and forget what was removed: its names are under a version in CHANGELOG.md by now")
)

// TestBreaksAreTold: what is exported is what api says, and what was removed since the
// last release is named in CHANGELOG.md.
func TestBreaksAreTold(t *testing.T) {
	now := exported(t)
	recorded := read(t)
	if *update || *release {
		for _, path := range paths(recorded, now) {
			write(t, path, next(recorded[path], now[path], *release))
		}
		recorded = read(t)
	}
	for _, path := range paths(recorded, now) {
		want := next(recorded[path], now[path], false)
		if lacks, has := without(want, recorded[path]), without(recorded[path], want); len(lacks)+len(has) > 0 {
			t.Errorf("api/%s.txt is not what the package exports: go test ./internal/apicheck -update\nit lacks %q\nit has %q", path, lacks, has)
		}
	}
	changes, err := os.ReadFile(root + "/CHANGELOG.md")
	require.NoError(t, err)
	for _, line := range missing(recorded, told(string(changes))) {
		t.Error(line)
	}
}

// paths are those of all packages that are or were.
func paths(recorded, now map[string][]string) []string {
	all := maps.Clone(recorded)
	maps.Copy(all, now)
	return slices.Sorted(maps.Keys(all))
}

// next is what is to be recorded: what is exported now, and what was and is not.
func next(recorded, now []string, release bool) []string {
	all := slices.Clone(now)
	for _, line := range recorded {
		if former := strings.TrimPrefix(line, mark); !release && !slices.Contains(now, former) {
			all = append(all, mark+former)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// without are the lines of a that b has not.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

var (
	named    = regexp.MustCompile(`^(?:func|var|const|type) (\w+)`)
	fieldOf  = regexp.MustCompile(`^field (\w+)\.(\w+)`)
	methodOf = regexp.MustCompile(`^method \(\*?(\w+)\) (\w+)`)
)

// names are those by which the change of a line may be told, the narrowest first.
func names(path, line string) []string {
	if m := named.FindStringSubmatch(line); m != nil {
		return []string{path + "." + m[1]}
	}
	m := fieldOf.FindStringSubmatch(line)
	if m == nil {
		m = methodOf.FindStringSubmatch(line)
	}
	return []string{path + "." + m[1] + "." + m[2], path + "." + m[1]}
}

// missing says which lines CHANGELOG.md lacks.
func missing(recorded map[string][]string, told map[string]bool) []string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		for _, line := range recorded[path] {
			former, removed := strings.CutPrefix(line, mark)
			if !removed {
				continue
			}
			of := names(path, former)
			if !slices.ContainsFunc(of, func(name string) bool { return told[name] }) {
				all = append(all, path+": removed or changed: "+former+"\n\twrite under \"### Breaks\" of \"## Unreleased\" in CHANGELOG.md: - `"+of[0]+"`: …")
			}
		}
	}
	return all
}

var quoted = regexp.MustCompile("`([^`]+)`")

// told are the names in backticks under "### Breaks" of "## Unreleased".
func told(changes string) map[string]bool {
	all := map[string]bool{}
	var unreleased, breaks bool
	for line := range strings.Lines(changes) {
		switch title := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "## "):
			unreleased, breaks = title == "## Unreleased", false
		case strings.HasPrefix(line, "### "):
			breaks = title == "### Breaks"
		case unreleased && breaks:
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				all[m[1]] = true
			}
		}
	}
	return all
}

func read(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(records, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		path, err := filepath.Rel(records, strings.TrimSuffix(file, ".txt"))
		all[filepath.ToSlash(path)] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		return err
	})
	if !*update && !*release {
		require.NoError(t, err)
	}
	return all
}

func write(t *testing.T, path string, lines []string) {
	t.Helper()
	file := filepath.Join(records, filepath.FromSlash(path)+".txt")
	if len(lines) == 0 {
		require.NoError(t, os.RemoveAll(file))
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}
