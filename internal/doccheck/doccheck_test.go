// Package doccheck holds the documentation to the code.
package doccheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// documents are the pages people read in the repository.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(root + "/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	reports, err := filepath.Glob(root + "/lab/reports/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	require.NotEmpty(t, more)
	require.NotEmpty(t, reports)
	return slices.Concat(pages, more, reports)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// files are those under a folder of the repository that have this ending.
func files(t *testing.T, folder, suffix string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(file, suffix) {
			all = append(all, file)
		}
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

// sources are the files of Go under a folder, but for tests.
func sources(t *testing.T, folder string) []string {
	t.Helper()
	return slices.DeleteFunc(files(t, folder, ".go"), func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// goBlock is a Go code block with what stands on the line before it.
var goBlock = regexp.MustCompile("(?s)([^\n]*)\n```go\n(.*?)```")

var from = regexp.MustCompile(`^<!-- from (\S+) -->$`)

// TestGoCodeInDocumentsIsInTheRepository: each Go block names, in a comment on
// the line before it, the file that it stands in, verbatim but for indentation.
// So what is shown compiles, and the tests run it.
func TestGoCodeInDocumentsIsInTheRepository(t *testing.T) {
	blocks := 0
	for _, page := range documents(t) {
		for _, m := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			blocks++
			source := from.FindStringSubmatch(m[1])
			require.NotNil(t, source, "%s: no `<!-- from file -->` on the line before\n%s", page, m[2])
			file := read(t, filepath.Join(root, source[1]))
			require.True(t, strings.Contains(flat(file), flat(m[2])), "%s: not in %s:\n%s", page, source[1], m[2])
		}
	}
	require.NotZero(t, blocks)
}

// flat takes indentation and blank ends away.
func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n") + "\n"
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksLeadSomewhere: files that are linked exist, and so do the headings.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, page := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			require.FileExists(t, target+suffix(t, target), "%s links to %s", page, m[1])
			if anchor != "" {
				require.Contains(t, anchors(read(t, target)), anchor, "%s links to %s", page, m[1])
			}
		}
	}
	require.NotZero(t, links)
}

// suffix lets a link to a directory mean the package there.
func suffix(t *testing.T, target string) string {
	t.Helper()
	info, err := os.Stat(target)
	if err != nil || !info.IsDir() {
		return ""
	}
	files, err := filepath.Glob(target + "/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files, "%s has no Go files", target)
	return "/" + filepath.Base(files[0])
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors are the headings of a page as links name them.
func anchors(page string) []string {
	var found []string
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found = append(found, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return found
}

var sentinel = regexp.MustCompile(`(?m)^\s*(Err[A-Za-z]+)\s+= errors\.New`)

// TestEverySentinelErrorIsExplained in the page about leases.
func TestEverySentinelErrorIsExplained(t *testing.T) {
	page := read(t, root+"/docs/leases.md")
	found := sentinel.FindAllStringSubmatch(read(t, root+"/lease/lease.go"), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		require.Contains(t, page, "`"+m[1]+"`", "docs/leases.md says nothing of lease.%s", m[1])
	}
}

// TestLinesAreShort: text wraps at 100 columns. Tables, code, headings and what has no
// space to break at may be longer.
func TestLinesAreShort(t *testing.T) {
	for _, page := range documents(t) {
		code := false
		for line := range strings.Lines(read(t, page)) {
			line = strings.TrimRight(line, "\n")
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#") || utf8.RuneCountInString(line) <= 100 {
				continue
			}
			require.NotContains(t, strings.TrimLeft(text, "-*0123456789. "), " ", "%s: longer than 100 columns:\n%s", page, line)
		}
	}
}

var packagePath = regexp.MustCompile(`\b(?:backends|cmd|console|contrib|deploy|examples|health|hosting|internal|lab|leaderelection|lease|membership|node|partition|placement|remoting|sharding|singleton|store|test|tools)(?:/[a-z]+)*\b`)

// whole are the directories that the page names for all that is in them.
var whole = []string{"examples", "lab/compat"}

// TestThePackagesAreThoseThatExist: docs/architecture.md names each package, and no other.
func TestThePackagesAreThoseThatExist(t *testing.T) {
	named := map[string]bool{}
	for _, path := range packagePath.FindAllString(read(t, root+"/docs/architecture.md"), -1) {
		named[path] = true
		if strings.Contains(path, "/") {
			require.DirExists(t, filepath.Join(root, path), "docs/architecture.md names %s", path)
		}
	}
	packages := 0
	require.NoError(t, filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || strings.HasPrefix(name, ".") && dir != root {
			return fs.SkipDir
		}
		files, err := filepath.Glob(dir + "/*.go")
		if len(files) == 0 || dir == root {
			return err
		}
		packages++
		path, err := filepath.Rel(root, dir)
		path = filepath.ToSlash(path)
		covered := named[path] || slices.ContainsFunc(whole, func(of string) bool { return strings.HasPrefix(path, of+"/") && named[of] })
		require.True(t, covered, "docs/architecture.md does not name %s", path)
		return err
	}))
	require.Greater(t, packages, 30)
}
